// Package locked is the lock-based copy of the fleet: the baseline of benchmarks, and the
// fallback of a replica. It has nothing to do with locks that clients take, and package cache does
// not use it. Replicas normally choose from the lock-free cache (package cache).
//
//	State     the copy: every heartbeat copies the map of nodes under locks
//	Adapter   lets a dispatcher choose from a State (lockless_cache.enabled: false)
//	Verifier  compares a State with the cache and reports differences (enable_data_sync)
//	Compare   compares two copies; the importer of schedctl uses it too
//
// # State
//
//	Put, Heartbeat, Remove, SetConfig
//	  management    (RWMutex)  the record of each node, changed in place
//	  publish       (Mutex)    copies the map of the last snapshot, replaces one entry
//	  snapshots.mu  (RWMutex)  swaps the snapshot
//	Class, Settle
//	  snapshots.mu, read       takes the snapshot
//	  members.mu, read         takes the class's candidates, built from a snapshot
//	State, States              read a snapshot, and never wait
//
// The cost of the design is O(nodes) of work and garbage for each heartbeat, one heartbeat after
// the other. The copy is the thing that is compared with the cache, so it stays. The rest costs as
// little as possible:
//
//   - The copy is made outside the lock that readers take. They wait for the swap of a pointer,
//     never for a copy. The copy shares all entries except the changed one.
//   - The management lock is held for the change of one record. Profiles are compared and compiled
//     before that. No lock is held during I/O.
//   - The candidate lists outlive snapshots. Only a changed profile, a node that comes or goes, and
//     a new configuration make them out of date. The first reader then builds the list again, while
//     the others use the former one.
//   - Slots in use, reservations and the last sign of life are in the [selection.Node] that all
//     snapshots share, because a copy would lose the dispatcher's reservations. So a choice runs
//     the same code on the same figures as with the cache, plus two read locks.
//
// # Guarantees, and what happens on failure
//
// A State reads no clock, does no I/O and starts no goroutine, so it cannot fail. The cache keeps
// it current as its Mirror; while Redis does not answer, both keep what they have. A Verifier
// corrects nothing: it logs "locked.differs" and sets a metric.
package locked
