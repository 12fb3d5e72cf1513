package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestConsumerFollows(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix)
		s := subscribe(t, c, "orders")
		s.untilText("empty (never registered)")
		w.register("orders", "e1", []string{"b", "a"})
		s.untilText("live a b")
		w.register("orders", "e1", []string{"a"}, func(r *Registration) { r.Weight, r.Metadata = new(5.0), map[string]string{"zone": "z1"} })
		l := s.until("of weight 5", func(l *List) bool { return l.Instances[0].Weight == 5 })
		if in := l.Instances[0]; in.Metadata["zone"] != "z1" || in.Port != 80 || in.Epoch != "e1" || in.Interval != 10*time.Second {
			t.Errorf("instance is %+v", in)
		}
		w.deregister("orders", "a")
		s.untilText("live b")
		w.deregister("orders", "b")
		s.untilText("empty (deregistered)")
		w.register("orders", "e2", []string{"a"})
		s.untilText("live a")

		// A first read follows, and waits.
		w.register("users", "e1", []string{"x"})
		l, err := c.AllInstances(consumerContext(t), "users")
		if err != nil || describe(l) != "live x" {
			t.Fatalf("users: %v, %v", l, err)
		}
		if err := c.Unsubscribe("users"); err != nil {
			t.Fatal(err)
		}
		if err := c.Unsubscribe("users"); !errors.Is(err, ErrNotSubscribed) {
			t.Errorf("second Unsubscribe: %v", err)
		}
		l, err = c.HealthyInstances(consumerContext(t), "users")
		if err != nil || describe(l) != "live x" {
			t.Fatalf("users again: %v, %v", l, err)
		}
	})
}

// TestOneListener: Unsubscribe with a listener ends that one alone, and it is not called again.
func TestOneListener(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix)
		w.register("users", "e", []string{"a"})
		one, other := &seen{t: t, lists: make(chan *List, 100)}, &seen{t: t, lists: make(chan *List, 100)}
		first, err := c.Subscribe("users", func(l *List) { one.lists <- l })
		if err != nil {
			t.Fatal(err)
		}
		second, err := c.Subscribe("users", func(l *List) { other.lists <- l })
		if err != nil {
			t.Fatal(err)
		}
		one.untilText("live a")
		other.untilText("live a")
		if err := c.Unsubscribe("users", first); err != nil {
			t.Fatal(err)
		}
		if err := c.Unsubscribe("users", first); !errors.Is(err, ErrNotSubscribed) {
			t.Errorf("a second Unsubscribe: %v, expected that it is not subscribed", err)
		}
		if err := c.Unsubscribe("orders", second); !errors.Is(err, ErrNotSubscribed) {
			t.Errorf("Unsubscribe of another service: %v, expected that it is not subscribed", err)
		}
		for len(one.lists) > 0 {
			<-one.lists
		}
		w.register("users", "e", []string{"b"})
		other.untilText("live a b")
		if len(one.lists) > 0 {
			t.Errorf("the ended listener was called with %s", describe(<-one.lists))
		}
		if err := c.Unsubscribe("users", second); err != nil {
			t.Error(err)
		}
		if _, follows := c.services.Load("users"); follows {
			t.Error("the service is followed, expected that nothing uses it any more")
		}
	})
}

// TestBadTimeout: a time for one read that is over says nothing.
func TestBadTimeout(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	c := newConsumer(t, redis, redis.Prefix(t))
	for _, bad := range []time.Duration{0, -time.Second} {
		if _, err := c.HealthyInstances(consumerContext(t), "users", WithTimeout(bad)); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Errorf("%s: %v, expected that it is refused", bad, err)
		}
	}
}

// Unsubscribe ends subscriptions and reads alone, and what nothing uses is not followed any more.
func TestConsumerUsers(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix)
		follows := func(service string) bool { _, ok := c.services.Load(service); return ok }
		w.register("users", "e", []string{"a"})
		heard := &seen{t: t, lists: make(chan *List, 100)}
		stop := c.Follow("users", func(l *List) { heard.lists <- l }) // as transports and resolvers do
		lists, err := c.Lists(consumerContext(t), "users")            // as a Picker does
		if err != nil {
			t.Fatal(err)
		}
		s := subscribe(t, c, "users")
		s.untilText("live a")
		if err := c.Unsubscribe("users"); err != nil {
			t.Fatal(err)
		}
		if err := c.Unsubscribe("users"); !errors.Is(err, ErrNotSubscribed) {
			t.Errorf("second Unsubscribe: %v", err)
		}
		w.register("users", "e", []string{"b"})
		w.deregister("users", "a")
		heard.untilText("live b")
		if got := describe(lists.List()); got != "live b" {
			t.Errorf("the picker has %s", got)
		}
		if stop(); !follows("users") {
			t.Error("the end of Follow has ended the picker's lists")
		}

		stop = c.Follow("orders", func(*List) {})
		again := c.Follow("orders", func(*List) {})
		if stop(); !follows("orders") {
			t.Error("the end of one Follow has ended another one")
		}
		if again(); follows("orders") {
			t.Error("nothing uses the service, and it is followed")
		}
		stop = c.Follow("orders", func(*List) {})
		if _, err := c.AllInstances(consumerContext(t), "orders"); err != nil {
			t.Error(err)
		}
		if stop(); !follows("orders") {
			t.Error("the end of Follow has ended a read")
		}
		if err := c.Unsubscribe("orders"); err != nil || follows("orders") {
			t.Errorf("Unsubscribe after a read: %v", err)
		}
	})
}

// Lists that give up waiting for the first list leave nothing behind.
func TestConsumerListsGiveUp(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	redis.Kill()
	c := newConsumer(t, redis.Target, "p", func(o *ConsumerOptions) { o.SnapshotDir = t.TempDir() })
	ctx, cancel := context.WithCancel(consumerContext(t))
	cancel()
	if _, err := c.Lists(ctx, "orders"); !errors.Is(err, context.Canceled) {
		t.Errorf("lists: %v", err)
	}
	if _, ok := c.services.Load("orders"); ok {
		t.Error("the service is followed")
	}
}

// A folder in which nothing can be written is refused at the start, not found out when Redis is away.
func TestConsumerSnapshotDirThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/snapshots"} {
		n, err := NewNaming(NamingOptions{Options: Options{RedisURL: redis.URL(), KeyPrefix: redis.Prefix(t)}, SnapshotDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := errors.AsType[*freeslot.Error](n.Start(bounded(t))); !ok || e.Field != "snapshot_dir" || !strings.Contains(e.Message, dir) {
			t.Errorf("%v, expected an error that names snapshot_dir and %s", e, dir)
		}
		if err := n.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	}
}

// A load of many pages while everything changes.
func TestConsumerLoads(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix)
		all := ids(10_000)
		w.register("big", "e1", all)
		begin := time.Now()
		l, err := c.AllInstances(consumerContext(t), "big")
		if err != nil || len(l.Instances) != len(all) || l.State != StateLive {
			t.Fatalf("loaded %v, %v", l, err)
		}
		t.Logf("loaded %d in %s", len(all), time.Since(begin))
		s := subscribe(t, c, "big")
		w.deregister("big", all[:5000]...)
		w.register("big", "e1", all[5000:7000], func(r *Registration) { r.Metadata = map[string]string{"a": "b"} })
		s.until("of 5000", func(l *List) bool { return len(l.Instances) == 5000 && l.Instances[1999].Metadata["a"] == "b" })
	})
}

func TestConsumerErrors(t *testing.T) {
	t.Parallel()
	_, err := NewConsumer(ConsumerOptions{RedisURL: "x", KeyPrefix: "{", Timeout: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "redis_url") || !strings.Contains(err.Error(), "2 more") {
		t.Errorf("three bad options: %v", err)
	}
	c, err := NewConsumer(ConsumerOptions{RedisURL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AllInstances(consumerContext(t), "orders"); !errors.Is(err, ErrNotStarted) {
		t.Errorf("before Start: %v", err)
	}
	if _, err := c.Subscribe("no spaces", func(*List) {}); err == nil {
		t.Error("a bad name was taken")
	}
	if err := c.Start(consumerContext(t)); err == nil {
		t.Error("Start without Redis succeeded")
	}
	for range 2 {
		if err := c.Stop(consumerContext(t)); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.AllInstances(consumerContext(t), "orders"); err == nil {
		t.Error("a read after Stop succeeded")
	}
}
