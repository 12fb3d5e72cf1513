// Package cache is a replica's lock-free picture of all nodes: their profiles and live figures, and
// the candidates of each class of jobs.
//
// # How it stays true
//
// One goroutine a cell, the follower, writes the cell's nodes. So an older state never overwrites a
// newer one. (The dispatcher corrects figures, too.)
//
//	an event with the next revision   apply it                              apply.go
//	a gap in the revisions            read the nodes that changed since     resync.go
//	every refresh interval            compare revisions; the same if        resync.go
//	                                  events do not come that far
//	the counter was lost, or the
//	server has another history        read everything                       resync.go
//	a profile written without a
//	script (client-side caching)      read these nodes                      invalidation.go
//
// # Guarantees
//
//   - The picture is a hint. The script that reserves a slot checks again, so an old figure costs a
//     refusal, never a slot that is used twice.
//   - It finds the truth again by itself: after every missed or unreadable event, within two
//     refresh intervals at the latest; within a minute for writes without a script where the server
//     cannot report them.
//   - Readers take no lock and never wait for Redis. The nodes are in a concurrent map, their
//     figures are atomics that the candidate lists share, and a class's list is immutable behind an
//     atomic pointer, rebuilt on first use after a profile changed. Only Settle, Sync and
//     CheckedState wait.
//   - The number of candidate lists is bounded, because clients name the classes.
//
// # What happens on failure
//
//   - A cell does not answer: the cache keeps what it has and repeats the comparison, soon at first
//     and then up to the interval. [Cache.Skip] has the cell, and [Cache.Health] reports it. Nodes
//     become silent after the heartbeat limit by the local monotonic clock, so a wrong clock can
//     only make a replica give up sooner.
//   - A node has a broken profile: it is no node here; all others are unaffected.
//   - At the start a cell is down: the cache starts with the others after a grace period.
//   - The queue of events is full: its events are dropped, and a comparison brings their nodes.
package cache
