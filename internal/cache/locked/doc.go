// Package locked keeps the picture of the fleet under locks. It is the design that
// package cache replaced, kept for two uses: as the baseline of benchmarks, and as
// what a replica falls back to (lockless_cache.enabled: false).
//
// # State
//
//	Put, Heartbeat, Remove, SetConfig
//	  management.mu (RWMutex)  what is known of each node, changed in place
//	  publish       (Mutex)    copies the map of the last snapshot, replaces one entry
//	  snapshot.mu   (RWMutex)  swaps the snapshot
//	Choose, Settle
//	  snapshot.mu, read        takes the snapshot
//	  members.mu, read         takes the class's candidates, built from a snapshot
//	State, States              read a snapshot, and wait for nobody
//
// Every heartbeat copies the whole map of nodes. That is the cost of the design:
// O(nodes) of work and of garbage for each, one heartbeat after the other. It is kept
// because it is what is compared; everything around it is as good as it can be:
//
//   - The copy is made outside the lock that readers take. They wait for the swap of a
//     pointer, never for a copy.
//   - The copy is [maps.Clone], and shares all entries but the one that changed.
//   - The management lock is held for the change of one record. Profiles are compared
//     and compiled before it is taken. Nothing does I/O under any lock.
//   - The pool members cache outlives snapshots. Only a changed profile, a node that
//     comes or goes, and a new configuration make its lists out of date; they are then
//     rebuilt one by one on use, by one reader, while the others go on with the former.
//   - Slots in use, reservations under way and the last sign of life stand in the
//     [selection.Node] that all snapshots share: the dispatcher corrects them between
//     two heartbeats, and a copy would forget its reservations. So a choice is the same
//     code on the same figures as the cache's, plus two read locks.
//
// What would make the copy cheaper makes another design of it: one copy for several
// heartbeats has readers see late figures, a slice by node number or a persistent map
// is no longer a map, and figures outside the snapshot altogether are package cache.
// BenchmarkCopy has what a slice would cost.
//
// # Plain
//
// [Plain] is one RWMutex around everything, without a snapshot: heartbeats change the
// node in place under the write lock, choices hold the read lock.
//
// # What they do not know
//
// Neither reads a clock, talks to Redis or starts a goroutine. A State is kept
// current by the cache, whose Mirror it is, and is chosen from through [Path]. It has
// no revisions of its own: [Compare] says what of two pictures can be compared.
package locked
