// Package lock is a distributed lock on Redis: fair if wanted, fenced, and its holder learns in time that the lock
// is lost. Users import the package lock at the root, which names the same types.
//
// # How it works
//
//	key.go          the names of the keys; locks of a cluster are spread over 64 hash tags
//	script/         one Lua script an operation; calls.go has one Go function for each
//	acquisition.go  the life of one acquisition: waiting, held, ended
//	held.go         what a holder has: context, token, unlock, re-entry
//	wait.go         how acquisitions wait; local.go: the waiters of one process, where the lock is unfair
//	beat.go         shows Redis that the waiters of this process live; wake.go hears of grants
//	renew.go        renews leases; clock.go ends those that are over; watchdog.go looks whether all is well
//	manager.go      owns the connections and the loops
//
// # Guarantees
//
// A lock is held from its grant until its end, by the clock of the holder: the moment the last confirmed acquire or
// renewal was sent, plus the lease, minus a margin. An unanswered renewal moves no end. Redis counts the same lease
// from a later moment, so the key outlives the holder's context. Every grant has a token above all earlier ones of
// its lock.
//
// # On failure
//
// An answer that does not come leaves an acquire in doubt: it is repeated under the same number, which takes nothing
// twice, or given back. A waiter that gives up leaves the queue and passes on a grant that comes late. A release is
// repeated until the lease is over.
package lock
