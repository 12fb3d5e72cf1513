package registry

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestNaming(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		n, err := NewNaming(NamingOptions{Options: Options{RedisURL: redis.URL(), KeyPrefix: redis.Prefix(t), StopPause: -1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(consumerContext(t)); err != nil || !n.Running() {
			t.Fatalf("start: %v", err)
		}
		s := subscribe(t, n.Consumer, "orders")
		if err := n.Register(consumerContext(t), Registration{Service: "orders", ID: "a", Port: 80}); err != nil {
			t.Fatal(err)
		}
		s.untilText("live a")
		if err := n.Deregister(consumerContext(t), "orders", "a"); err != nil {
			t.Fatal(err)
		}
		s.untilText("empty (deregistered)")
		for range 2 {
			if err := n.Stop(consumerContext(t)); err != nil || n.Running() {
				t.Errorf("stop: %v", err)
			}
		}
	})
}

// A Naming starts while Redis is away, and registers its instances when Redis is back.
func TestNamingWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	redis.Kill()
	n, err := NewNaming(NamingOptions{
		Options: Options{RedisURL: redis.URL(), KeyPrefix: redis.Prefix(t), StopPause: -1}, Timeout: 2 * time.Second, SnapshotDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(consumerContext(t)); err != nil || !n.Running() {
		t.Fatalf("start: %v", err)
	}
	s := subscribe(t, n.Consumer, "orders")
	err = n.Register(consumerContext(t), Registration{Service: "orders", ID: "a", Port: 80})
	if freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		t.Errorf("register: %v, expected unavailable", err)
	}
	redis.Restart()
	s.untilText("live a")
	if err := n.Stop(consumerContext(t)); err != nil {
		t.Error(err)
	}
}
