// Package cache is a replica's lock-free copy of all nodes: their profiles and live figures, and
// the candidates of each class of jobs.
//
// # How it stays true
//
// One goroutine for each cell, the follower, writes the cell's nodes. So an older state never
// overwrites a newer one. (The dispatcher corrects figures, too.)
//
//	an event with the next revision   apply it                              apply.go
//	a gap in the revisions            read the nodes that changed since     resync.go
//	every refresh interval            compare revisions; the same if        resync.go
//	                                  events do not come that far
//	the counter was lost, or the
//	server's history is another one   read everything                       resync.go
//	a profile written without a
//	script (client-side caching)      read these nodes                      invalidation.go
//
// # Guarantees
//
//   - The copy is a hint. The script that reserves a slot checks again, so an old figure costs a
//     refusal, never a slot that is used twice.
//   - It corrects itself: after a missed or unreadable event within two refresh intervals at the
//     latest. Writes without a script take up to a minute if the server cannot report them.
//   - Readers take no lock and never wait for Redis. The nodes are in a concurrent map, and their
//     figures are atomics that the candidate lists share. A class's list is immutable behind an
//     atomic pointer, and is built again on first use after a profile changed. Only Settle, Sync
//     and CheckedState wait.
//   - The number of candidate lists is bounded, because clients name the classes.
//
// # What happens on failure
//
//   - A cell does not answer: the cache keeps what it has and repeats the comparison, soon at first
//     and later at up to the interval. [Cache.Skip] has the cell, and [Cache.Health] reports it.
//     Nodes become silent after the heartbeat limit by the local monotonic clock, so a wrong clock
//     can only make a replica give up sooner.
//   - A node has a broken profile: the cache leaves it out; all others are unaffected.
//   - A cell is down at the start: the cache starts with the others after a grace period.
//   - The queue of events is full: events are dropped, and a comparison reads their nodes.
package cache
