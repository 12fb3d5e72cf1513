// Package cache is a replica's lock-free picture of all nodes.
//
// It is a hint: choosing a node reads only this memory, and the script that
// reserves checks again. One goroutine a cell writes its nodes: it applies events,
// fetches what changed after a gap in the revisions, reads again what somebody wrote
// without an event, and replaces everything when the counter was lost or the server's
// history is another one. (The dispatcher corrects figures, too.) Readers take no
// lock: nodes stand in a concurrent map, their live figures are atomics shared with
// the candidate lists, and a class's list is immutable behind an atomic pointer,
// rebuilt on first use after a profile changed.
//
// When Redis is silent the cache keeps what it has; nodes become silent after the
// heartbeat limit by the local monotonic clock, which can only make a replica
// give up sooner.
package cache
