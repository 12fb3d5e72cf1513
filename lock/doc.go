// Package lock is a distributed lock on Redis. It can serve the waiters of all processes in order.
// It wakes one waiter, not all of them. It ends a holder's context before the next holder can get
// the lock, and hands out a fencing token that only grows.
//
//	m, err := lock.New(lock.Options{RedisURL: "redis://127.0.0.1:6379"})
//	err = m.Start(ctx)
//	defer m.Stop(context.Background())
//
//	l, err := m.Get(lock.Config{Key: "user:profile:1001"})
//	held, err := l.Lock(ctx) // or l.TryLock(ctx, wait); wait 0 is one look
//	if err != nil {
//		return err
//	}
//	defer held.Unlock(ctx)
//	return work(held.Context(), held.Token())
//
// [Lock.Do] does the same in one call, and also unlocks after a panic.
//
// A lock is renewed as long as its process lives, not as long as its holder works: a goroutine that
// hangs, or ends without Unlock, keeps it. Use Do, and bound the hold by Config.MaxHold or by the
// context that you lock with: the deadline of Lock(ctx) ends the hold, too. A hold without MaxHold
// that lasts more than ten leases is logged once (lock.held_long), with the line that acquired it.
//
// # What is promised
//
// A lock is held until its lease ends by the holder's clock. The lease counts from the moment at
// which the last renewal that Redis confirmed was sent. The context of [Held.Context] has ended by
// then. Redis counts the same lease from a later moment. So no two holders have live contexts at
// the same time while Redis keeps its data, whatever happens to the network and the processes.
// docs/lock.md has the table of faults, including those that no lock can help against.
//
// Three things follow for the caller:
//
//   - Check the context before each write. Its Err looks at the clock, so it notices the end even in a
//     process that was stopped meanwhile.
//   - A write that is on its way when the lease ends cannot be called back. If that matters, give the
//     token to the resource, and let the resource refuse lower ones: [Fence] does that in Redis.
//   - A lost lock is never silently taken again, because others could change what it guards meanwhile.
//     Start over.
//
// # Entering again
//
// Locking a key with a context derived from the holder's enters the lock again, without asking
// Redis. Each entry is a [Held] of its own. Two goroutines with the same context are one owner;
// [WithoutOwner] separates one of them.
//
// # When Redis is away
//
// [Lock.Lock] keeps trying until its context ends, and then returns the last failure. Holds live on
// until their leases end. Unlock returns after at most about a second; the lock is given back when
// Redis is available again.
package lock
