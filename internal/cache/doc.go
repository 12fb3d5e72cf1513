// Package cache is a replica's lock-free picture of all nodes.
//
// It is a hint: choosing a node reads only this memory, and the script that
// reserves checks again. One goroutine a cell writes: it applies events, fetches what
// changed after a gap in the revisions, and replaces everything when the counter
// itself was lost, or may have been because the subscription broke. Readers take no
// lock: nodes stand in a concurrent map, their live figures are atomics shared with
// the candidate lists, and a class's list is immutable behind an atomic pointer,
// rebuilt on first use after a profile changed.
//
// When Redis is silent the cache keeps what it has; nodes become silent after the
// heartbeat limit by the local monotonic clock, which can only make a replica
// give up sooner.
package cache
