package registry

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestConsumerRandom: after random calls, broken subscriptions, flushes and restarts of a real
// Redis, the list is what Redis has.
func TestConsumerRandom(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t, redistest.AppendOnly("always"))
			prefix := redis.Prefix(t)
			w := newWriter(t, redis.Target, prefix)
			c := newConsumer(t, redis.Target, prefix, quickLooks)
			r := rand.New(rand.NewPCG(seed, 7))
			lists := subscribe(t, c, "orders")
			ask := func(command ...string) {
				t.Helper()
				if err := redistest.Ask(consumerContext(t), redis.Addrs()[0], command...).Error(); err != nil {
					t.Fatal(err)
				}
			}
			for round := range 8 {
				for range 60 {
					ids := ids(30)
					r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
					ids = ids[:1+r.IntN(8)]
					switch r.IntN(20) {
					case 0:
						ask("CLIENT", "KILL", "TYPE", "pubsub")
					case 1, 2, 3, 4, 5, 6:
						w.deregister("orders", ids...)
					default:
						w.register("orders", "e1", ids, func(reg *Registration) { reg.Weight = new(float64(1 + r.IntN(9))) })
					}
				}
				switch round {
				case 2:
					ask("FLUSHALL")
				case 5:
					redis.Kill()
					redis.Restart()
				}
				want := recordOf(t, w, "orders")
				lists.until("as Redis has it: "+fmt.Sprint(slices.Sorted(maps.Keys(want))), func(*List) bool { return equalRecord(c, want) })
				if round == 2 {
					w.register("orders", "e1", ids(30)) // all are confirmed again
				}
			}
		})
	}
}

// recordOf reads revision and weight of each instance, one by one.
func recordOf(t *testing.T, w *writer, service string) map[string]string {
	t.Helper()
	runner, k := w.conn.of(service)
	ctx := consumerContext(t)
	found, err := runner.Do(ctx, "test", runner.B().Zrange().Key(k.heartbeats(service)).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, id := range found {
		fields, err := runner.Do(ctx, "test", runner.B().Hgetall().Key(k.instance(service, id)).Build()).AsStrMap()
		if err != nil {
			t.Fatal(err)
		}
		out[id] = fields["revision"] + " " + fields["weight"]
	}
	return out
}

func equalRecord(c *Consumer, want map[string]string) bool {
	l, err := c.AllInstances(context.Background(), "orders")
	if err != nil {
		return false
	}
	got := make(map[string]string)
	for _, in := range l.Instances {
		if !in.Unconfirmed {
			got[in.ID] = fmt.Sprintf("%d %v", in.Revision, in.Weight)
		}
	}
	return maps.Equal(got, want) && (l.State == StateLive || l.State == StateRebuilding || l.State == StateEmpty && l.Why != "")
}

// A frozen listener delays no reads, and then gets the latest list alone.
func TestConsumerSlowListener(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	w, c := newWriter(t, redis, prefix), newConsumer(t, redis, prefix)
	entered, release, calls := make(chan struct{}, 100), make(chan struct{}), make(chan *List, 100)
	if _, err := c.Subscribe("orders", func(l *List) {
		entered <- struct{}{}
		<-release
		calls <- l
	}); err != nil {
		t.Fatal(err)
	}
	<-entered
	for i := range 20 {
		w.register("orders", "e1", []string{fmt.Sprintf("i%02d", i)})
	}
	if err := redistest.Await(func(ctx context.Context) bool {
		l, err := c.AllInstances(ctx, "orders")
		return err == nil && len(l.Instances) == 20
	}); err != nil {
		t.Fatal(err)
	}
	close(release)
	<-calls
	if l := <-calls; len(l.Instances) != 20 {
		t.Errorf("the second call has %d instances, expected 20", len(l.Instances))
	}
}
