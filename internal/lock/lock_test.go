package lock

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestTakeAndGiveBack(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, prefix := bounded(t), redis.Prefix(t)
		x, y := newManager(t, redis, prefix), newManager(t, redis, prefix)
		cfg := Config{Key: "user:profile:1001"}
		held := take(t, x, cfg)
		again, err := get(t, x, cfg).Lock(held.Context())
		if err != nil || again.Token() != held.Token() {
			t.Fatal(again, err)
		}
		if err := again.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		if err := again.Unlock(ctx); !errors.Is(err, ErrNotHeld) {
			t.Fatal(err)
		}
		if err := held.Context().Err(); err != nil {
			t.Fatal(err)
		}
		if err := held.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		if cause := context.Cause(held.Context()); !errors.Is(cause, ErrUnlocked) {
			t.Fatal(cause)
		}
		if next := take(t, y, cfg); next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		} else if err := next.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		noneHeld(t, redis, prefix)
	})
}

// TestReentry goes by context: of the hold, of what is derived from it, not of a stranger, and not
// after the end.
func TestReentry(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m, other := newManager(t, redis, prefix), newManager(t, redis, prefix)
	cfg := Config{Key: "k", Renewal: 50 * time.Millisecond}
	l, held := get(t, m, cfg), take(t, m, cfg)
	derived, cancel := context.WithCancel(context.WithValue(held.Context(), callTimeout, 1))
	defer cancel()
	inner, err := l.TryLock(derived, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw := redis.Client(t)
	await(t, "the count in Redis", func() bool {
		n, err := do(t, raw, "HGET", prefix+":held:k", "count").AsInt64()
		return err == nil && n == 2
	})
	for what, ctx := range map[string]context.Context{"stranger": WithoutOwner(derived), "no owner": ctx} {
		if h, err := l.TryLock(ctx, 0); !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v, %v; want errors.Is(err, ErrNotAcquired)", what, h, err)
		}
	}
	if h, err := get(t, other, cfg).TryLock(derived, 0); !errors.Is(err, ErrNotAcquired) { // another manager's
		t.Error(h, err)
	}
	if err := held.Unlock(ctx); err != nil || inner.Context().Err() != nil {
		t.Fatal("the outer entry left:", err, inner.Context().Err())
	}
	if err := inner.Unlock(ctx); err != nil || derived.Err() == nil {
		t.Fatal(err, derived.Err())
	}
	if h, err := l.TryLock(derived, 0); !errors.Is(err, ErrUnlocked) { // never taken again by the way
		t.Error(h, err)
	}
}

// TestHeldByOneself: whoever waits for a lock that its own process holds learns who has it.
func TestHeldByOneself(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	m := newManager(t, redis, redis.Prefix(t))
	for _, fair := range []bool{false, true} {
		cfg := Config{Key: strconv.FormatBool(fair), Fair: fair}
		held := take(t, m, cfg)
		tries(t, "the deadline, and who has it", func(wait time.Duration) error {
			ctx, cancel := context.WithTimeout(bounded(t), wait)
			defer cancel()
			_, err := get(t, m, cfg).Lock(ctx)
			return err
		}, context.DeadlineExceeded, ErrNotAcquired)
		unlock(bounded(t), t, held)
	}
}

// TestEntryContext: that of an entry comes from the caller's, and knows all holds of it.
func TestEntryContext(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, m := bounded(t), newManager(t, redis, redis.Prefix(t))
	a, b := get(t, m, Config{Key: "a"}), get(t, m, Config{Key: "b"})
	lock := func(ctx context.Context, l *Lock) *Held {
		t.Helper()
		h, err := l.TryLock(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	outer := lock(ctx, a)
	second := lock(outer.Context(), b)
	bounds, cancel := context.WithCancel(context.WithValue(second.Context(), callTimeout, 1))
	entry := lock(bounds, a)
	if entry.Context().Value(callTimeout) != 1 {
		t.Error("the value of the caller is gone")
	}
	if h := lock(entry.Context(), b); h.Unlock(ctx) != nil { // would wait for itself
		t.Error("the second hold is not known")
	}
	cancel()
	receive(t, entry.Context().Done())
	if outer.Context().Err() != nil {
		t.Error("an entry's caller has ended the hold")
	}
	last := lock(outer.Context(), a)
	m.lose(outer.a, ErrGone)
	receive(t, last.Context().Done())
	if cause := context.Cause(last.Context()); !errors.Is(cause, ErrGone) {
		t.Error(cause)
	}
}

// TestMadeAnew: a lock that a late acquire makes anew for the same acquisition is another hold.
func TestMadeAnew(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	held := take(t, newManager(t, redis, prefix), Config{Key: "k"})
	do(t, redis.Client(t), "DEL", prefix+":held:k")
	g := held.a.group
	if got, err := g.acquire(ctx, []acquireItem{{a: held.a, place: "0"}}); err != nil || got[0].code != codeDone || got[0].token <= held.Token() {
		t.Fatal(got, err)
	}
	if got, err := g.renew(ctx, []*acquisition{held.a}, false); err != nil || got[0].code != codeTaken {
		t.Error(got, err)
	}
}

// TestLostReentry: after a loss each entry says so, and the last one gives back what Redis still
// has.
func TestLostReentry(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis, prefix)
	held := take(t, m, Config{Key: "k"})
	inner, err := get(t, m, Config{Key: "k"}).Lock(held.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.lose(held.a, ErrStalled)
	if err := inner.Unlock(ctx); !errors.Is(err, ErrLost) || !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	if _, err := get(t, m, Config{Key: "k"}).TryLock(ctx, 0); !errors.Is(err, ErrNotAcquired) {
		t.Error("given back while an entry is at work:", err)
	}
	if err := held.Unlock(ctx); !errors.Is(err, ErrLost) || !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	if err := held.Unlock(ctx); !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
	noneHeld(t, redis, prefix)
}

// TestParentEnds: the context that a lock was taken with ends the hold, which is renewed no more.
// It stays until the unlock.
func TestParentEnds(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis, prefix)
	l := get(t, m, Config{Key: "k", Lease: MinLease})
	parent, cancel := context.WithTimeoutCause(ctx, time.Hour, errParent)
	held, err := l.Lock(parent)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := parent.Deadline()
	if got, ok := held.Context().Deadline(); !ok || !got.Equal(want) {
		t.Error(got, ok)
	}
	cancel()
	if err := held.Context().Err(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := l.TryLock(ctx, 0); !errors.Is(err, ErrNotAcquired) {
		t.Error(err)
	}
	if err := held.Unlock(parent); err != nil { // also with a context that has ended
		t.Error(err)
	}
	// One that is never unlocked runs out.
	parent, cancel = context.WithCancel(ctx)
	if held, err = l.Lock(parent); err != nil {
		t.Fatal(err)
	}
	cancel()
	noneHeld(t, redis, prefix)
	if err := held.Unlock(ctx); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	ended, end := context.WithCancelCause(ctx)
	end(errParent)
	if _, err := l.Lock(ended); !errors.Is(err, errParent) {
		t.Error(err)
	}
}

// TestDo unlocks after a return, an error and a panic.
func TestDo(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis, prefix)
	l := get(t, m, Config{Key: "k"})
	failed := errors.New("failed")
	for _, want := range []error{nil, failed} {
		if err := l.Do(ctx, func(ctx context.Context, token int64) error {
			if ctx.Err() != nil || token == 0 {
				t.Error(ctx.Err(), token)
			}
			return want
		}); !errors.Is(err, want) {
			t.Error(err)
		}
	}
	func() {
		defer func() {
			if r := recover(); r != failed { //nolint:errorlint // the very value
				t.Error(r)
			}
		}()
		_ = l.Do(ctx, func(context.Context, int64) error { panic(failed) })
	}()
	if err := l.Do(ctx, func(context.Context, int64) error {
		do(t, redis.Client(t), "DEL", prefix+":held:k")
		return nil
	}); !errors.Is(err, ErrLost) || !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	noneHeld(t, redis, prefix)
}

// TestErrLooksAtTheClock: a process that was stopped finds its context ended at the first look,
// before any loop has looked.
func TestErrLooksAtTheClock(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	m := newManager(t, redis, redis.Prefix(t))
	for range 20 { // the loop looks every 250 ms
		held := take(t, m, Config{Key: "k"})
		derived, cancel := context.WithCancel(held.Context())
		held.a.until.Store(int64(uptime()))
		if err := held.Context().Err(); err == nil || derived.Err() == nil || !errors.Is(context.Cause(derived), ErrExpired) {
			t.Fatal(err, context.Cause(derived))
		}
		cancel()
		if err := held.Unlock(bounded(t)); !errors.Is(err, ErrExpired) {
			t.Error(err)
		}
		noneHeld(t, redis, m.opts.KeyPrefix)
	}
	held := take(t, m, Config{Key: "k"})
	held.a.until.Store(int64(uptime()))
	receive(t, held.Context().Done()) // and for those who only wait
}

// TestAtLeast: nobody gets the lock before that time is over, also where it was handed over and never
// claimed; then a waiter does.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	x, y := newManager(t, redis, prefix), newManager(t, redis, prefix)
	cfg := Config{Key: "k", Lease: time.Hour, AtLeast: time.Hour, Fair: true}
	first := take(t, x, Config{Key: "k"})
	second := waits(ctx, t, y, cfg)
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	held := receive(t, second)
	third := waits(ctx, t, x, Config{Key: "k", Fair: true})
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, x, Config{Key: "k"}).TryLock(ctx, 0); !errors.Is(err, ErrNotAcquired) {
		t.Error(err)
	}
	raw, key := redis.Client(t), prefix+":held:k"
	if left, err := do(t, raw, "PTTL", key).AsInt64(); err != nil || left < time.Minute.Milliseconds() || left > time.Hour.Milliseconds() {
		t.Errorf("taken for %d ms, expected what is left of an hour: %v", left, err)
	}
	do(t, raw, "PEXPIRE", key, "1") // the hour is over
	if err := receive(t, third).Unlock(ctx); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis, prefix)
}

func TestNotStartedAndStopped(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m, err := New(Options{RedisURL: redis.URL(), KeyPrefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	l := get(t, m, Config{Key: "k"})
	if _, err := l.Lock(ctx); !errors.Is(err, ErrNotStarted) {
		t.Error(err)
	}
	if err := m.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(ctx); err == nil {
		t.Error("started twice")
	}
	held, err := l.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	waiter := make(chan error, 2)
	for _, fair := range []bool{false, true} {
		go func() {
			_, err := get(t, m, Config{Key: "k", Fair: fair}).Lock(ctx)
			waiter <- err
		}()
	}
	await(t, "the waiters", func() bool { return len(m.groups[0].waiting()) == 1 && behind(m, "k") == 1 })
	for range 2 {
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := receive(t, waiter); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	if cause := context.Cause(held.Context()); !errors.Is(cause, ErrClosed) {
		t.Error(cause)
	}
	if err := held.Unlock(ctx); !errors.Is(err, ErrLost) || !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := l.Lock(ctx); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := m.Start(ctx); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	// What is left runs out: its holder may be at work still.
	if left, err := do(t, redis.Client(t), "PTTL", prefix+":held:k").AsInt64(); err != nil || left <= 0 {
		t.Error(left, err)
	}
	never, err := New(Options{RedisURL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if err := never.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// behind is how many wait in the process.
func behind(m *Manager, key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.locals[key]
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.behind)
}
