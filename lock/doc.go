// Package lock is a distributed lock on Redis. It serves waiters of all processes in order where
// that is wanted, wakes one of them and not all, ends the holder's context before another one can
// hold the lock, and hands out a fencing token that only grows.
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
// [Lock.Do] is the same in one call, and unlocks also after a panic.
//
// A lock is renewed as long as its process lives, not as long as its holder works: a goroutine that
// ends without Unlock, or hangs, keeps it. Use Do, and bound the hold by Config.MaxHold, or by the
// context that you lock with: the deadline of Lock(ctx) ends the hold, too. A hold that outlives
// ten leases without MaxHold is logged once (lock.held_long), with the line that acquired it.
//
// # What is promised
//
// A lock is held until its lease ends, by the clock of the holder, counted from the sending of the
// last renewal that Redis has confirmed. The context of [Held.Context] has ended by then. Redis
// counts the same lease from a later moment. So no two holders have live contexts at one time while
// Redis keeps its data, whatever becomes of the network and of the processes. docs/lock.md has the
// table of faults, with those that no lock can help against.
//
// Three things follow for the caller:
//
//   - Check the context before each write: its Err looks at the clock, so it knows the end also in a process
//     that was stopped meanwhile.
//   - A write that is on its way when the lease ends cannot be called back. Where that matters, give the
//     token to the resource, and have the resource refuse lower ones: [Fence] does that in Redis.
//   - A lost lock is never taken again without a word: what it guards was open meanwhile. Start over.
//
// # Entering again
//
// Locking a key with a context that comes from the holder's enters the lock again, without asking
// Redis. Each entry is a [Held] of its own. Two goroutines with one context are one owner;
// [WithoutOwner] makes a stranger of one.
//
// # When Redis is away
//
// [Lock.Lock] goes on trying until its context ends, and answers then with the last failure. Holds
// live on until their leases end. Unlock answers after a second, and the lock is given back when
// Redis is there again.
package lock
