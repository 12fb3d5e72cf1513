package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/redis/redistest"
)

func newManager(t *testing.T, redis *redistest.Target, prefix string, change ...func(*Options)) *Manager {
	t.Helper()
	opts := Options{RedisURL: redis.URL(), KeyPrefix: prefix}
	for _, c := range change {
		c(&opts)
	}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

func get(t *testing.T, m *Manager, cfg Config) *Lock {
	t.Helper()
	l, err := m.Get(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTakeAndGiveBack(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx := bounded(t)
		prefix := redis.Prefix(t)
		x, y := newManager(t, redis, prefix), newManager(t, redis, prefix)
		cfg := Config{Key: "user:profile:1001"}
		held, err := get(t, x, cfg).TryLock(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		var busy *HeldError
		if _, err := get(t, y, cfg).TryLock(ctx, 0); !errors.As(err, &busy) || !errors.Is(err, ErrNotAcquired) || busy.Left <= 0 {
			t.Fatalf("%v", err)
		}
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
		if held.Context().Err() != nil {
			t.Fatal(held.Context().Err())
		}
		if err := held.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		if cause := context.Cause(held.Context()); !errors.Is(cause, ErrUnlocked) {
			t.Fatal(cause)
		}
		next, err := get(t, y, cfg).TryLock(ctx, 0)
		if err != nil || next.Token() <= held.Token() {
			t.Fatal(next, err)
		}
		if err := next.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

func TestExclusion(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%v", fair), func(t *testing.T) {
			t.Parallel()
			redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
				t.Parallel()
				ctx := bounded(t)
				prefix := redis.Prefix(t)
				var inside, rounds atomic.Int64
				var last int64
				var workers sync.WaitGroup
				begin := time.Now()
				for range 4 {
					m := newManager(t, redis, prefix)
					l := get(t, m, Config{Key: "k", Fair: fair})
					for range 4 {
						workers.Go(func() {
							for range 100 {
								h, err := l.Lock(ctx)
								if err != nil {
									t.Error(err)
									return
								}
								if n := inside.Add(1); n != 1 {
									t.Errorf("%d holders", n)
								}
								if h.Token() <= last {
									t.Errorf("token %d after %d", h.Token(), last)
								}
								last = h.Token()
								if h.Context().Err() != nil {
									t.Error(context.Cause(h.Context()))
								}
								rounds.Add(1)
								inside.Add(-1)
								if err := h.Unlock(ctx); err != nil {
									t.Error(err)
								}
							}
						})
					}
				}
				workers.Wait()
				t.Logf("%d rounds in %s", rounds.Load(), time.Since(begin))
			})
		})
	}
}
