package registry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// quickLooks is T at its least useful: a look each second.
func quickLooks(o *ConsumerOptions) { o.Timeout = 2 * time.Second }

func TestConsumerFlush(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	prefix := redis.Prefix(t)
	w, c := newWriter(t, redis.Target, prefix), newConsumer(t, redis.Target, prefix, quickLooks)
	w.register("orders", "e1", []string{"a", "b"})
	s := subscribe(t, c, "orders")
	s.untilText("live a b")
	if err := redistest.Ask(consumerContext(t), redis.Addrs()[0], "FLUSHALL").Error(); err != nil {
		t.Fatal(err)
	}
	s.untilText("rebuilding a? b?")
	w.register("orders", "e1", []string{"b"})
	s.untilText("rebuilding a? b")
	w.register("orders", "e1", []string{"a"})
	s.untilText("live a b")
}

func TestConsumerRestart(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]redistest.Option{"with data": {redistest.AppendOnly("always")}, "without data": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t, options...)
			prefix := redis.Prefix(t)
			w, c := newWriter(t, redis.Target, prefix), newConsumer(t, redis.Target, prefix, quickLooks)
			w.register("orders", "e1", []string{"a", "b"})
			s := subscribe(t, c, "orders")
			s.untilText("live a b")
			redis.Kill()
			s.untilText("stale a b")
			redis.Restart()
			if options == nil {
				s.untilText("rebuilding a? b?")
				w.register("orders", "e2", []string{"a", "b"})
			}
			s.untilText("live a b")
			w.deregister("orders", "a")
			s.untilText("live b")
		})
	}
}

func TestConsumerPause(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	prefix := redis.Prefix(t)
	w, c := newWriter(t, redis.Target, prefix), newConsumer(t, redis.Target, prefix, quickLooks)
	w.register("orders", "e1", []string{"a"}, func(r *Registration) { r.Persistent = true })
	s := subscribe(t, c, "orders")
	s.untilText("live a")
	redis.Pause()
	s.untilText("stale a")
	redis.Resume()
	s.untilText("live a")
}

// A silent instance is late by Redis' clock, stands in as the last resort, and a read can have a T
// of its own.
func TestConsumerLate(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix, func(o *ConsumerOptions) { o.Timeout = 500 * time.Millisecond })
		short := func(r *Registration) { r.Interval = 100 * time.Millisecond }
		w.register("orders", "e1", []string{"a"}, short)
		s := subscribe(t, c, "orders")
		s.untilText("live a!late")
		l, err := c.HealthyInstances(consumerContext(t), "orders")
		if err != nil || !l.Last || len(l.Instances) != 1 {
			t.Errorf("the last resort is %+v, %v", l, err)
		}
		w.register("orders", "e1", []string{"b"}, short, func(r *Registration) { r.Persistent = true })
		s.untilText("live a!late b")
		if l, err = c.HealthyInstances(consumerContext(t), "orders"); err != nil || l.Last || describe(l) != "live b" {
			t.Errorf("healthy are %+v, %v", l, err)
		}
		l, err = c.HealthyInstances(consumerContext(t), "orders", WithTimeout(time.Hour))
		if err != nil || describe(l) != "live a b" || l.Timeout != time.Hour {
			t.Errorf("within an hour %s, %v", describe(l), err)
		}
		w.register("orders", "e1", []string{"a", "b"}, short, func(r *Registration) { r.Disabled = true })
		s.until("disabled", func(l *List) bool { return l.Instances[0].Disabled && l.Instances[1].Disabled })
		if l, err = c.HealthyInstances(consumerContext(t), "orders"); err != nil || describe(l) != "empty (none healthy)" {
			t.Errorf("disabled ones: %s, %v", describe(l), err)
		}
	})
}

// More late ones than one look names.
func TestConsumerManyLate(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix, func(o *ConsumerOptions) { o.Timeout = 300 * time.Millisecond })
	for i := range 3 {
		w.register(fmt.Sprintf("s%d", i), "e1", ids(2500), func(r *Registration) { r.Interval = 100 * time.Millisecond })
	}
	for i := range 3 {
		subscribe(t, c, fmt.Sprintf("s%d", i)).until("late", func(l *List) bool {
			for _, in := range l.Instances {
				if !in.Late {
					return false
				}
			}
			return len(l.Instances) == 2500
		})
	}
}

// Broken subscriptions come back, and what was missed is fetched; the connections are two however
// many services are followed.
func TestConsumerConnections(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	prefix := redis.Prefix(t)
	ask := func(command ...string) string {
		text, err := redistest.Ask(consumerContext(t), redis.Addrs()[0], command...).ToString()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	w := newWriter(t, redis.Target, prefix)
	c := newConsumer(t, redis.Target, prefix, func(o *ConsumerOptions) { o.Timeout = time.Minute })
	last := map[string]*seen{}
	for i := range 1000 {
		service := fmt.Sprintf("s%d", i)
		if i < 3 {
			last[service] = subscribe(t, c, service)
		} else if _, err := c.Subscribe(service, func(*List) {}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range last {
		s.untilText("empty (never registered)")
	}
	channels := func() int {
		n := 0
		for line := range strings.Lines(ask("CLIENT", "LIST")) {
			for field := range strings.FieldsSeq(line) {
				var subs int
				if _, err := fmt.Sscanf(field, "sub=%d", &subs); err == nil {
					n += subs
				}
			}
		}
		return n
	}
	awaitChannels := func(want int) {
		t.Helper()
		if err := redistest.Await(func(context.Context) bool { return channels() == want }); err != nil {
			t.Fatalf("%d channels, expected %d: %v", channels(), want, err)
		}
	}
	awaitChannels(1000)
	if n := strings.Count(ask("CLIENT", "LIST"), "name=freeslot-registry"); n != 2 {
		t.Errorf("%d connections, expected 2:\n%s", n, ask("CLIENT", "LIST"))
	}
	for i := 3; i < 1000; i++ {
		if err := c.Unsubscribe(fmt.Sprintf("s%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	awaitChannels(3)
	for i := range 5 {
		if err := redistest.Ask(consumerContext(t), redis.Addrs()[0], "CLIENT", "KILL", "TYPE", "pubsub").Error(); err != nil {
			t.Fatal(err)
		}
		epoch := fmt.Sprintf("e%d", i)
		w.register("s0", epoch, []string{"a"})
		last["s0"].until("of "+epoch, func(l *List) bool { return len(l.Instances) == 1 && l.Instances[0].Epoch == epoch })
	}
	awaitChannels(3)
}

// A service whose hash slot moves is followed on.
func TestConsumerSlotMoves(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	prefix := redis.Prefix(t)
	w, c := newWriter(t, redis.Target, prefix), newConsumer(t, redis.Target, prefix, func(o *ConsumerOptions) { o.Timeout = time.Minute })
	s := subscribe(t, c, "orders")
	w.register("orders", "e1", []string{"a"})
	s.untilText("live a")
	runner, _ := w.conn.of("orders")
	slot, _ := runner.Layout().Slot()
	from := redis.Owner(uint16(slot))
	for _, p := range redis.Processes()[:3] {
		if p != from {
			redis.MigrateSlot(uint16(slot), p)
			break
		}
	}
	w.register("orders", "e1", []string{"b"})
	s.untilText("live a b")
	redis.Failover(uint16(slot))
	w.register("orders", "e1", []string{"c"})
	s.untilText("live a b c")
}

// A process starts from the disk while Redis is away, and goes on when it is back.
func TestConsumerDisk(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	prefix, dir := redis.Prefix(t), filepath.Join(t.TempDir(), "lists")
	stored := func(o *ConsumerOptions) { o.SnapshotDir, o.Timeout = dir, 2*time.Second }
	w, c := newWriter(t, redis.Target, prefix), newConsumer(t, redis.Target, prefix, stored)
	w.register("orders", "e1", []string{"a", "b"})
	subscribe(t, c, "orders").untilText("live a b")
	if err := c.Stop(consumerContext(t)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files are %v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode() != 0o600 {
		t.Errorf("file is %v, %v", info.Mode(), err)
	}
	redis.Kill()
	c = newConsumer(t, redis.Target, prefix, stored)
	s := subscribe(t, c, "orders")
	s.untilText("disk a b")
	redis.Restart() // without data
	s.untilText("rebuilding a? b?")
	w.register("orders", "e1", []string{"a", "b"})
	s.untilText("live a b")
}

func TestConsumerFigures(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix, func(o *ConsumerOptions) { o.Figures, o.Timeout = true, time.Minute })
		s := subscribe(t, c, "orders")
		w.register("orders", "e1", []string{"a"})
		s.untilText("live a")
		for i := range 100 { // until the channel is subscribed to
			metrics := fmt.Sprintf(`{"cpu":{"percent":%d}}`, i)
			if _, err := w.conn.heartbeat(consumerContext(t), "orders", false, []beatItem{{id: "a", epoch: "e1", metrics: metrics}}); err != nil {
				t.Fatal(err)
			}
			select {
			case l := <-s.lists:
				if strings.Contains(string(l.Instances[0].Metrics), `"percent"`) {
					return
				}
			case <-time.After(100 * time.Millisecond):
			}
		}
		t.Fatal("no metrics came")
	})
}

// A frozen master delays the looks of its own services alone: those of the others go on, and find
// their dead instances late.
func TestConsumerFrozenMaster(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	prefix := redis.Prefix(t)
	w, c := newWriter(t, redis.Target, prefix), newConsumer(t, redis.Target, prefix, func(o *ConsumerOptions) { o.Timeout = 4 * time.Second })
	for _, p := range redis.Processes() { // nothing fails over while this lasts
		if err := redistest.Ask(consumerContext(t), p.Addr(), "CONFIG", "SET", "cluster-node-timeout", "60000").Error(); err != nil {
			t.Fatal(err)
		}
	}
	slotOf := func(service string) uint16 {
		runner, _ := w.conn.of(service)
		slot, _ := runner.Layout().Slot()
		return uint16(slot)
	}
	frozen := redis.Owner(slotOf("s0"))
	healthy := map[string]*seen{}
	for i := range 60 {
		service := fmt.Sprintf("s%d", i)
		w.register(service, "e1", []string{"a"}, func(r *Registration) { r.Interval = time.Second })
		s := subscribe(t, c, service)
		s.untilText("live a")
		if redis.Owner(slotOf(service)) != frozen {
			healthy[service] = s
		}
	}
	if err := frozen.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := frozen.Resume(); err != nil {
			t.Error(err)
		}
	}()
	for _, s := range healthy {
		s.untilText("live a!late")
	}
}
