package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestRedisClockAhead: a jump of Redis' clock ends all leases, so another one gets the lock. The
// first holder knows at its next check, and tokens go on growing, also when the clock is put back.
func TestRedisClockAhead(t *testing.T) {
	t.Parallel()
	redis, ahead := redistest.NewWithClock(t)
	ctx := bounded(t)
	lockOf := func() *Lock {
		t.Helper()
		m, err := New(Options{RedisURL: redis.AdminURL()})
		if err != nil {
			t.Fatal(err)
		}
		waittest.Succeeds(t, "the start", func() error { return m.Start(ctx) })
		t.Cleanup(func() { _ = m.Stop(context.WithoutCancel(ctx)) })
		l, err := m.Get(Config{Key: "k", WatchdogPeriod: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	hold := func(l *Lock) *Held {
		t.Helper()
		held, err := l.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	first, second := lockOf(), lockOf()
	one := hold(first)
	ahead(time.Hour)
	two := hold(second)
	select {
	case <-one.Context().Done():
	case <-ctx.Done():
		t.Fatal("the first holder does not learn that it has lost the lock")
	}
	if cause := context.Cause(one.Context()); !errors.Is(cause, ErrTaken) && !errors.Is(cause, ErrGone) {
		t.Errorf("the first holder's context ended with %v", cause)
	}
	if two.Context().Err() != nil {
		t.Errorf("the second holder lost the lock, too: %v", context.Cause(two.Context()))
	}
	ahead(0)
	unlock(ctx, t, two)
	three := hold(first)
	if !(one.Token() < two.Token() && two.Token() < three.Token()) {
		t.Errorf("tokens %d, %d, %d do not grow", one.Token(), two.Token(), three.Token())
	}
	unlock(ctx, t, three)
}
