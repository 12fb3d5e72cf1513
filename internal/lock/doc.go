// Package lock implements the package lock at the root, which names the same types: a distributed
// lock on Redis. It is fair on request and fenced, and a holder learns in time that it has lost the
// lock.
//
// # How it works
//
//	key.go          the names of the keys; locks of a cluster are spread over 64 hash tags
//	script/         one Lua script an operation; calls.go has one Go function for each
//	acquisition.go  the life of one acquisition: waiting, held, ended
//	wait.go         how acquisitions wait; local.go: the waiters of one process, if the lock is unfair
//	beat.go         shows Redis that the waiters of this process live, and hears of grants
//	held.go         what a holder has: context, token, unlock, re-entry
//	unlock.go       gives locks back, names heirs, and repeats what Redis has not answered
//	renew.go        renews leases, and ends holds that are over; watchdog.go checks that all is well
//	origin.go       where in the program a lock was acquired, for the log
//	group.go        what the locks of one hash tag share: calls, beats, proofs of how old a grant is
//	manager.go      owns the connections and the loops
//
// An acquisition is known to Redis by its process and a number that is never used again:
//
//	waiting --grant--> held --last Unlock, loss, end of the lease--> ended
//	   \--gave up--> left
//
// In Redis an acquisition can have a ticket in the queue, an unclaimed grant, or the lock. Its
// ticket leaves the queue when the lock is granted to it. Its process claims the grant by a renewal
// or a beat within 0.7 of the liveness limit. If it does not, but still waits, its next beat brings
// the ticket back to its old place.
//
// # Guarantees
//
// A lock is held from its grant until its end, by the holder's clock. The end is the moment at
// which the last confirmed acquire or renewal was sent, plus the lease, minus a margin. An
// unanswered renewal does not move the end. Redis counts the same lease from a later moment, so the
// key outlives the holder's context. Every grant has a token above all earlier ones of its lock.
//
// # On failure
//
// A missing answer leaves an acquire in doubt. It is then repeated under the same number, which
// takes nothing twice, or is given back. A waiter that gives up leaves the queue and passes on a
// grant that comes late. A release is repeated until the lease is over.
package lock
