package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/lock"
)

// TestRights: the user of role lock may do all that locks need, waiting and replication of grants
// among it.
func TestRights(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, url, prefix string, replicas int) {
		t.Helper()
		ctx := waittest.Context(t)
		var inside atomic.Int32
		done := make(chan error)
		for range 2 {
			m, err := lock.New(lock.Options{RedisURL: url, KeyPrefix: prefix, Replicas: replicas})
			if err == nil {
				err = m.Start(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := m.Stop(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			})
			for _, fair := range []bool{false, true} {
				l, err := m.Get(lock.Config{Key: fmt.Sprint("fair ", fair), Fair: fair})
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					var failed error
					for range 20 {
						failed = errors.Join(failed, l.Do(ctx, func(ctx context.Context, _ int64) error {
							if !fair && inside.Add(1) != 1 {
								return errors.New("two holders")
							}
							if !fair {
								inside.Add(-1)
							}
							return ctx.Err()
						}))
					}
					done <- failed
				}()
			}
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		run(t, redis.URL(), redis.Prefix(t), 0)
	})
	t.Run("replicated", func(t *testing.T) {
		t.Parallel()
		redis := redistest.NewWithReplicas(t, 1)
		run(t, redis.URL(), "lock", 1)
	})
}
