package registry_test

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/registry"
)

// The role registry may do all that a provider and a consumer do.
func TestRole(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx := waittest.Context(t)
		n, err := registry.NewNaming(registry.NamingOptions{
			Options: registry.Options{RedisURL: redis.URL(), KeyPrefix: redis.Prefix(t), StopPause: -1}, Figures: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(ctx); err != nil {
			t.Fatal(err)
		}
		lists := make(chan *registry.List, 100)
		if _, err := n.Subscribe("orders", func(l *registry.List) { lists <- l }); err != nil {
			t.Fatal(err)
		}
		await := func(is func(*registry.List) bool) {
			t.Helper()
			for {
				select {
				case l := <-lists:
					if is(l) {
						return
					}
				case <-ctx.Done():
					t.Fatal(ctx.Err())
				}
			}
		}
		if err := n.Register(ctx, registry.Registration{Service: "orders", ID: "a", Port: 80}); err != nil {
			t.Fatal(err)
		}
		await(func(l *registry.List) bool { return l.State == registry.StateLive && len(l.Instances) == 1 })
		if l, err := n.HealthyInstances(ctx, "orders", registry.WithTimeout(time.Minute)); err != nil || len(l.Instances) != 1 {
			t.Errorf("%+v, %v; want no error, len(l.Instances) == 1", l, err)
		}
		if err := n.Deregister(ctx, "orders", "a"); err != nil {
			t.Fatal(err)
		}
		await(func(l *registry.List) bool {
			return l.State == registry.StateEmpty && l.Why == registry.WhyDeregistered
		})
		if err := n.Unsubscribe("orders"); err != nil {
			t.Error(err)
		}
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}
