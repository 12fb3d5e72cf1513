package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestFirstLoadIsPaged(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, Config{RefreshSize: 4, RefreshInterval: never})
		for i := range 25 {
			n := testNode(nodeName(i), i+1)
			n.Pools, n.Labels = []string{"p2", "p1", "p2"}, map[string]string{"i": itoa(i)}
			r.register(n)
		}
		r.deregister(nodeName(7))
		r.heartbeat(nodeName(3), `{"cpu":0.5}`)
		r.submit(nodeName(5))
		var pages []int
		r.source.intercept(func(_ context.Context, _ cell.Revision, ch *cell.Changes, err error) error {
			pages = append(pages, len(ch.Nodes))
			return err
		})
		if h := r.Health(); h.Synced || !h.Stale || h.Nodes != 0 {
			t.Errorf("before the load: %+v", h)
		}
		r.run()
		r.agrees()
		// They grow, so that a large fleet takes few calls; the tombstone is read, too.
		if fmt.Sprint(pages[:3]) != "[4 8 13]" {
			t.Errorf("pages of %v nodes", pages)
		}
		if h := r.Health(); !h.Synced || h.Stale || h.Nodes != 24 || r.Size() != 24 || h.Cells[0].Revision != 27 {
			t.Errorf("after the load: %+v", h)
		}
		if s, ok := r.State(nodeName(5)); !ok || s.Used != 1 {
			t.Errorf("State: %+v, %v", s, ok)
		}
		if _, ok := r.State(nodeName(7)); ok {
			t.Error("State of a node that left")
		}
		if _, ok := r.Node(nodeName(7)); ok {
			t.Error("Node of a node that left")
		}
	})
}

// An event has all that the cache needs: after any change of a node the cache reads nothing.
func TestEventsAreAppliedWithoutReading(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, Config{RefreshInterval: never})
		r.register(testNode("old", 2))
		r.run()
		calls := r.source.calls.Load()

		n := testNode("new", 2)
		n.Pools = []string{"z", "a"}
		r.register(n)
		r.converges()
		r.heartbeat("new", `{"cpu": 0.25}`)
		r.converges()
		job := r.submit("new")
		r.submit("new")
		r.converges()
		if s, _ := r.State("new"); s.Used != 2 {
			t.Errorf("after slot_full: %d used", s.Used)
		}
		r.complete("new", job)
		r.converges()
		if s, _ := r.State("new"); s.Used != 1 {
			t.Errorf("after slot_free: %d used", s.Used)
		}
		n.MaxConcurrency, n.Labels = 3, map[string]string{"zone": "eu"}
		r.register(n)
		r.converges()
		r.epochs["new"] = cell.NewEpoch() // the agent restarts
		r.register(n)
		r.converges()
		if err := r.cell.Drain(deadline(t), "new"); err != nil {
			t.Fatal(err)
		}
		r.converges()
		if s, _ := r.State("new"); s.Status != freeslot.StatusDrained {
			t.Errorf("drained by an operator: %s", s.Status)
		}
		if err := r.cell.Undrain(deadline(t), "new"); err != nil {
			t.Fatal(err)
		}
		r.converges()
		hb := cell.Heartbeat{Node: "new", Epoch: r.epochs["new"], Status: freeslot.StatusDraining}
		if _, err := r.cell.Heartbeat(deadline(t), hb); err != nil {
			t.Fatal(err)
		}
		r.converges()
		if node, _ := r.Node("new"); !node.Draining() {
			t.Error("not draining")
		}
		r.deregister("old")
		r.converges()

		if n := r.source.calls.Load() - calls; n != 0 {
			t.Errorf("%d reads", n)
		}
		if n := r.counter(r.metrics.gaps) + r.counter(r.metrics.badEvents); n != 0 {
			t.Errorf("%d gaps and bad events", n)
		}
	})
}

// A revision whose event never came is noticed at the next event.
func TestGap(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, Config{RefreshInterval: never})
		r.register(testNode("a", 2))
		r.register(testNode("b", 2))
		r.run()
		// A change of b without an event.
		layout := r.cell.Layout()
		revision, err := r.do("HINCRBY", layout.Version(), "revision", "1").AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		r.do("ZADD", layout.Revisions(), itoa(int(revision)), "b")
		r.do("HSET", layout.Node("b"), "max_concurrency", "7")
		calls := r.source.calls.Load()
		r.heartbeat("a", `{}`)
		r.converges()
		if s, _ := r.State("b"); s.Node.MaxConcurrency != 7 {
			t.Errorf("b has %d slots", s.Node.MaxConcurrency)
		}
		if n := r.source.calls.Load() - calls; n != 1 {
			t.Errorf("%d reads", n)
		}
		if n := r.counter(r.metrics.gaps); n != 1 {
			t.Errorf("%d gaps counted", n)
		}
		r.heartbeat("a", `{"again":1}`)
		r.converges()
		if n := r.source.calls.Load() - calls; n != 1 {
			t.Errorf("%d reads in the end", n)
		}
	})
}

// What only a replacing load can find. Each change is made behind the cache's back.
func TestReplacingLoad(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rig){
		"dropped tombstones": func(r *rig) {
			layout := r.cell.Layout()
			r.deregister("b")
			last := r.truthRevision()
			r.do("ZREM", layout.Revisions(), "-b")
			r.do("HSET", layout.Version(), "floor", itoa(last))
		},
		"another generation": func(r *rig) {
			layout := r.cell.Layout()
			r.do("HSET", layout.Version(), "generation", "another")
			r.do("HSET", layout.Node("a"), "max_concurrency", "9")
			r.do("DEL", layout.Node("b"))
		},
		"a revision that went back": func(r *rig) {
			layout := r.cell.Layout()
			r.do("HSET", layout.Version(), "revision", "1")
			r.do("ZADD", layout.Revisions(), "1", "a")
			r.do("ZREM", layout.Revisions(), "b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
				t.Parallel()
				r := newRig(t, redis, Config{RefreshInterval: never}, withoutEvents(true))
				for _, id := range []string{"a", "b", "c"} {
					r.register(testNode(id, 2))
				}
				r.run()
				r.agrees()
				change(r)
				r.sync()
				r.agrees()
				if slices.ContainsFunc(r.States(), func(s cell.NodeState) bool { return s.Node.ID == "b" }) {
					t.Error("b is still there")
				}
				// And goes on from there.
				r.register(testNode("d", 1))
				r.sync()
				r.agrees()
			})
		})
	}
}

func (r *rig) truthRevision() int {
	r.t.Helper()
	n, err := r.do("HGET", r.cell.Layout().Version(), "revision").AsInt64()
	if err != nil {
		r.t.Fatal(err)
	}
	return int(n)
}

// FLUSHALL takes the counter with the nodes; the next ones begin at 1 again.
func TestFlushAll(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprintf("events=%v", events), func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			r := newRig(t, redis.Target, Config{RefreshInterval: 20 * time.Millisecond}, withoutEvents(!events))
			for i := range 5 {
				r.register(testNode(nodeName(i), 2))
			}
			r.run()
			r.agrees()
			// More revisions than before, so that the counter alone shows nothing.
			r.do("FLUSHALL")
			for range 3 {
				for i := range 4 {
					n := testNode(nodeName(i), 3)
					r.epochs[n.ID] = cell.NewEpoch()
					r.register(n)
				}
			}
			r.converges()
			if r.Size() != 4 {
				t.Errorf("%d nodes", r.Size())
			}
			r.do("FLUSHALL")
			eventually(t, "an empty cache", func() bool { return r.Size() == 0 })
		})
	}
}

// After a failover the server can have lost its last writes and given their revisions to others. If
// the subscription breaks and the server is another one, the cache reads everything; if it is the
// same one, the changes since are enough.
func TestResubscription(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		history   string
		replacing bool
	}{
		"same server":             {"run 1", false},
		"another server":          {"run 2", true},
		"a server that keeps mum": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			r := newRig(t, redis.Target, Config{RefreshInterval: never})
			before := "run 1"
			r.source.history.Store(&before)
			r.register(testNode("a", 2))
			r.register(testNode("b", 2))
			r.run()
			// Another history with the same counter.
			layout := r.cell.Layout()
			r.do("HSET", layout.Node("a"), "max_concurrency", "7")
			r.do("DEL", layout.Node("b"))
			r.do("ZREM", layout.Revisions(), "b")
			r.sync()
			if s, _ := r.State("a"); s.Node.MaxConcurrency != 2 || r.Size() != 2 {
				t.Fatal("the comparison has found it: this test shows nothing")
			}
			r.source.history.Store(&c.history)
			admin := redis.Client(t)
			calls := r.source.calls.Load()
			if err := admin.Do(deadline(t), admin.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a comparison", func() bool { return r.source.calls.Load() > calls })
			r.sync() // behind it
			if s, _ := r.State("a"); (s.Node.MaxConcurrency == 7) != c.replacing || (r.Size() == 1) != c.replacing {
				t.Errorf("a has %d slots, %d nodes", s.Node.MaxConcurrency, r.Size())
			}
		})
	}
}

// Events that were queued before the subscription was renewed belong to a history
// that may be lost: they must not be applied on top of what was read since.
func TestResetDropsQueuedEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.register(testNode("a", 2))
	r.timer = time.NewTimer(never) // not started: the loop's part is ours
	defer r.timer.Stop()
	if !r.resync("test") {
		t.Fatal("no first load")
	}
	queue := make(chan string, 8)
	e := fmt.Sprintf("1 1 f %d a %s online 2 2 ", r.revision.Load()+1, r.epochs["a"])
	queue <- e
	r.reset(queue)
	if len(queue) != 0 {
		t.Errorf("%d events are left", len(queue))
	}
	r.receive(e) // this is what would have happened
	if s, _ := r.State("a"); s.Used != 2 {
		t.Fatal("the event would not have been applied: this test shows nothing")
	}
}

// While a load is read page by page the fleet goes on changing under it.
func TestLoadWhileChanging(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rig){
		"a node that was read leaves": func(r *rig) { r.deregister(nodeName(0)) },
		"a node that was read leaves and its tombstone is dropped": func(r *rig) {
			layout := r.cell.Layout()
			r.deregister(nodeName(0))
			last := r.truthRevision()
			r.do("ZREM", layout.Revisions(), "-"+nodeName(0))
			r.do("HSET", layout.Version(), "floor", itoa(last))
		},
		"a node that was read changes": func(r *rig) { r.register(testNode(nodeName(0), 77)) },
		"the counter is another one": func(r *rig) {
			layout := r.cell.Layout()
			r.do("HSET", layout.Version(), "generation", "another")
			r.do("ZREM", layout.Revisions(), nodeName(0))
		},
	} {
		for _, replacing := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/replacing=%v", name, replacing), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, redistest.Shared(t), Config{RefreshSize: 3, RefreshInterval: never}, withoutEvents(true))
				if !replacing {
					r.register(testNode("first", 1))
					r.run()
				}
				for i := range 10 {
					r.register(testNode(nodeName(i), 2))
				}
				pages := 0
				r.source.intercept(func(_ context.Context, _ cell.Revision, ch *cell.Changes, err error) error {
					if ch.More {
						if pages++; pages == 2 {
							change(r)
						}
					}
					return err
				})
				if replacing {
					r.run()
				} else {
					r.sync()
				}
				r.sync() // what changed meanwhile
				r.agrees()
			})
		}
	}
}

// A load ends although the fleet goes on changing under it.
func TestLoadEnds(t *testing.T) {
	t.Parallel()
	const fleet = 30
	for _, replacing := range []bool{true, false} {
		t.Run(fmt.Sprintf("replacing=%v", replacing), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Shared(t), Config{RefreshSize: 3, RefreshInterval: never}, withoutEvents(true), unhurried)
			if !replacing {
				r.register(testNode("first", 1))
				r.run()
			}
			for i := range fleet {
				r.register(testNode(nodeName(i), 2))
			}
			calls := r.source.calls.Load()
			r.source.intercept(func(context.Context, cell.Revision, *cell.Changes, error) error {
				for i := range fleet { // as many as the next page reads
					r.heartbeat(nodeName(i), `{}`)
				}
				if r.source.calls.Load() > calls+2*fleet {
					return errors.New("there is no end to it")
				}
				return nil
			})
			if replacing {
				r.run()
			} else {
				r.sync()
			}
			r.source.intercept(nil)
			r.sync()
			r.agrees()
		})
	}
}

// A node whose change of profile was missed escapes the replacing load that would bring it: a
// heartbeat moves it, and the heartbeat's event has no profile. A delta meets it further on.
func TestNodesEscapeFromALoad(t *testing.T) {
	t.Parallel()
	// Pages of 3, 6 and 12 nodes; the last page ends with the last node.
	const fleet, escaping = 3 + 1 + 6 + 12, 5
	for _, replacing := range []bool{true, false} {
		t.Run(fmt.Sprintf("replacing=%v", replacing), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Shared(t), Config{RefreshSize: 3, RefreshInterval: never}, withoutEvents(true), unhurried)
			for i := range fleet {
				r.register(testNode(nodeName(i), 2))
			}
			r.run()
			for i := range fleet {
				r.register(testNode(nodeName(i), 7))
			}
			if replacing {
				other := "another server"
				r.source.history.Store(&other)
			}
			r.source.intercept(func(context.Context, cell.Revision, *cell.Changes, error) error {
				r.heartbeat(nodeName(escaping), `{}`)
				for i := range 3 { // so that nodes that were read are behind it
					r.heartbeat(nodeName(i), `{}`)
				}
				return nil
			})
			r.sync()
			r.source.intercept(nil)
			for _, s := range r.States() {
				if s.Node.MaxConcurrency != 7 {
					t.Errorf("%s has %d slots", s.Node.ID, s.Node.MaxConcurrency)
				}
			}
			r.sync()
			r.agrees()
		})
	}
}

// The commands reach the server that took over after everything else has: only the history shows
// it.
func TestHistoryIsComparedEachTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: 20 * time.Millisecond}, withoutEvents(true))
	before, after := "run 1", "run 2"
	r.source.history.Store(&before)
	r.register(testNode("a", 2))
	r.run()
	r.do("HSET", r.cell.Layout().Node("a"), "max_concurrency", "7") // of another history, with the same revision
	r.sync()
	if s, _ := r.State("a"); s.Node.MaxConcurrency != 2 {
		t.Fatal("the comparison has found it: this test shows nothing")
	}
	r.source.history.Store(&after)
	r.converges()
}

// A fleet that leaves faster than it can be read ends the comparison, not the loop.
func TestLoadIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshSize: 1, RefreshInterval: never}, withoutEvents(true))
	for i := range 3 {
		r.register(testNode(nodeName(i), 2))
	}
	n := 0
	r.source.intercept(func(_ context.Context, _ cell.Revision, ch *cell.Changes, err error) error {
		n++
		ch.Generation = itoa(n) // another one each time
		return err
	})
	if _, _, err := r.fetch(); !errors.Is(err, errTooFast) {
		t.Errorf("got %v", err)
	}
	if n > 10*fetchTries {
		t.Errorf("%d reads", n)
	}
	r.source.intercept(nil)
	r.run()
	r.agrees()
}

// A profile that was broken by hand takes out its node, not the page. The node is back with its
// next sign of life after the profile was repaired.
func TestBrokenProfile(t *testing.T) {
	t.Parallel()
	for field, value := range map[string]string{
		"capabilities": "{", "installed_services": `{"name":"echo"}`, "pool_ids": `["a b"]`, "labels": "1",
		"max_concurrency": "many", "registered_at_ms": "yesterday",
	} {
		for _, events := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/events=%v", field, events), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(!events))
				for _, id := range []string{"a", "b", "c"} {
					r.register(testNode(id, 2))
				}
				key := r.cell.Layout().Node("b")
				good, err := r.do("HGET", key, field).ToString()
				if err != nil {
					t.Fatal(err)
				}
				r.do("HSET", key, field, value)
				r.run()
				if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"a", "c"}) {
					t.Errorf("while broken: %v", got)
				}
				alive := func(resources string) {
					r.heartbeat("b", resources)
					if !events {
						r.sync()
					}
				}
				alive(`{"broken":1}`)
				r.heartbeat("a", `{"after":"b"}`)
				if !events {
					r.sync()
				}
				eventually(t, "a's heartbeat", func() bool {
					s, _ := r.State("a")
					return string(s.Resources) == `{"after":"b"}`
				})
				if _, ok := r.Node("b"); ok {
					t.Error("the broken node is in the cache")
				}
				r.do("HSET", key, field, good)
				alive(`{"broken":0}`)
				r.converges()
				if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"a", "b", "c"}) {
					t.Errorf("mended: %v", got)
				}
			})
		}
	}
}

// A release that speaks another wire version makes this one read instead: at once
// for the first event, and not for each of a flood.
func TestUnknownWireVersion(t *testing.T) {
	t.Parallel()
	const flood = 5000
	redis := redistest.Shared(t)
	r := newRig(t, redis, Config{RefreshInterval: never})
	r.register(testNode("a", 2))
	r.run()
	layout := r.cell.Layout()
	calls := r.source.calls.Load()
	begin := time.Now()
	// A change that is announced only in the other form.
	change := func(i int) {
		revision := r.truthRevision() + 1
		// In an order that shows no comparison in between a half of it.
		r.do("HSET", layout.Node("a"), "max_concurrency", itoa(i))
		r.do("ZADD", layout.Revisions(), itoa(revision), "a")
		r.do("HSET", layout.Version(), "revision", itoa(revision))
		r.do("PUBLISH", layout.NodeEvents(), fmt.Sprintf("2 x %d something else", revision))
	}
	change(5)
	r.converges()
	if n := r.source.calls.Load() - calls; n != 1 {
		t.Errorf("%d reads for one event", n)
	}
	for range flood {
		r.do("PUBLISH", layout.NodeEvents(), "2 x 0 something else")
	}
	change(6)
	r.converges()
	eventually(t, "the flood", func() bool { return r.counter(r.metrics.badEvents) == flood+2 })
	// Two for each calm: one by the event that comes after it, one by the timer.
	limit := 2 + 2*int64(time.Since(begin)/calm+1)
	if n := r.source.calls.Load() - calls; n > limit || n > flood/4 {
		t.Errorf("%d reads for %d events in %s", n, flood, time.Since(begin))
	}
}

// Redis refuses reads while events go on: the events cause no storm of comparisons, and the first
// comparison with an answer repairs everything.
func TestEventsWhileReadsFail(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	r.register(testNode("a", 2))
	r.register(testNode("b", 2))
	r.run()
	calls := r.source.calls.Load()
	begin := time.Now()
	r.source.intercept(func(context.Context, cell.Revision, *cell.Changes, error) error {
		return errors.New("NOPERM")
	})
	r.do("HINCRBY", r.cell.Layout().Version(), "revision", "1") // a gap
	for i := range 1000 {
		r.heartbeat("a", fmt.Sprintf(`{"i":%d}`, i))
	}
	limit := 2 + 2*int64(time.Since(begin)/calm+1)
	if n := r.source.calls.Load() - calls; n > limit {
		t.Errorf("%d reads in %s", n, time.Since(begin))
	}
	r.source.intercept(nil)
	r.heartbeat("b", `{}`)
	r.converges()
	if n := r.counter(r.metrics.resyncErrors); n == 0 {
		t.Error("no error was counted")
	}
}

// registeredMS is when a node registered, in milliseconds of Redis' clock.
func (r *rig) registeredMS(node string) int64 {
	r.t.Helper()
	text, err := r.do("HGET", r.cell.Layout().Node(node), "registered_at_ms").ToString()
	if err != nil {
		r.t.Fatal(err)
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// A node is silent by the local monotonic clock alone, and by what Redis knew when
// the cache was loaded.
func TestSilentNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	r.register(testNode("a", 2))
	r.register(testNode("dead", 2))
	limit := r.SilenceLimit()
	r.do("SET", r.cell.Layout().Load("dead"), fmt.Sprintf("%d {}", r.registeredMS("dead")-limit.Milliseconds()-1))
	r.run()
	if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("loaded: %v", got)
	}
	if got := r.chosen(r.clock.now() + int64(limit)); len(got) != 0 {
		t.Errorf("after the limit: %v", got)
	}
	r.heartbeat("dead", `{}`)
	r.converges()
	if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"a", "dead"}) {
		t.Errorf("after a heartbeat: %v", got)
	}
	// Redis knows better than we do, until the next sign of life.
	for _, reason := range []cell.RefusalReason{cell.RefusedSilent, cell.RefusedGone} {
		r.Refused(cell.Refusal{Node: "a", Reason: reason})
		if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"dead"}) {
			t.Errorf("after the refusal %s: %v", reason, got)
		}
		r.heartbeat("a", fmt.Sprintf(`{"after":%q}`, reason))
		r.converges()
		if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"a", "dead"}) {
			t.Errorf("after its next heartbeat: %v", got)
		}
	}
	r.Refused(cell.Refusal{Node: "a", Reason: cell.RefusedFull, Used: 2, MaxConcurrency: 2})
	r.Refused(cell.Refusal{Node: "dead", Reason: cell.RefusedDraining})
	r.Refused(cell.Refusal{Node: "unknown", Reason: cell.RefusedFull, Used: 2})
	if got := r.chosen(r.clock.now()); len(got) != 0 {
		t.Errorf("one full, one draining: %v", got)
	}
}

// No time from Redis makes a node look alive in the future.
func TestTimesAreNotInTheFuture(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.register(testNode("a", 2))
	r.do("SET", r.cell.Layout().Load("a"), fmt.Sprintf("%d {}", r.registeredMS("a")+1e7))
	r.run()
	node, _ := r.Node("a")
	if at, ok := node.SeenAt(); !ok || at > r.clock.now() {
		t.Errorf("seen at %d, now %d", at, r.clock.now())
	}
}

func TestCheckedState(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, Config{RefreshInterval: never, VersionCheckTimeout: patience}, withoutEvents(true))
		r.register(testNode("a", 2))
		r.run()
		expect := func(id string, wantFound bool, wantSlots, hits, misses int) {
			t.Helper()
			s, found, checked := r.CheckedState(t.Context(), id)
			if found != wantFound || !checked || s.Node.MaxConcurrency != wantSlots {
				t.Errorf("%s: %+v, found %v, checked %v", id, s, found, checked)
			}
			if h, m := r.counter(r.metrics.hits), r.counter(r.metrics.misses); h != hits || m != misses {
				t.Errorf("%s: %d hits, %d misses, want %d, %d", id, h, m, hits, misses)
			}
		}
		expect("a", true, 2, 1, 0)
		r.register(testNode("a", 5))
		if s, _ := r.State("a"); s.Node.MaxConcurrency != 2 {
			t.Fatal("the cache has learnt of it by itself: this test shows nothing")
		}
		expect("a", true, 5, 1, 1)
		expect("a", true, 5, 2, 1)
		expect("unknown", false, 0, 2, 2)
		r.deregister("a")
		expect("a", false, 0, 2, 3)
		if n := r.counter(r.metrics.checkTimeouts); n != 0 {
			t.Errorf("%d timeouts", n)
		}
	})
}

// Redis does not answer: the cache returns the cached value soon, and reports it as unchecked.
func TestCheckedStateTimeout(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target, Config{RefreshInterval: never})
	r.register(testNode("a", 2))
	r.run()
	redis.Pause()
	defer redis.Resume()
	for i := range 3 {
		s, found, checked := r.CheckedState(t.Context(), "a")
		if !found || checked || s.Node.MaxConcurrency != 2 {
			t.Errorf("%+v, found %v, checked %v", s, found, checked)
		}
		if n := r.counter(r.metrics.checkTimeouts); n != i+1 {
			t.Errorf("%d timeouts, want %d", n, i+1)
		}
	}
}

func TestNoEvents(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, Config{RefreshInterval: 10 * time.Millisecond}, withoutEvents(true))
		r.register(testNode("a", 2))
		r.run()
		if n := r.subscribers(); n != 0 {
			t.Errorf("%d subscribers", n)
		}
		r.register(testNode("b", 2))
		r.heartbeat("a", `{"x":1}`)
		r.converges()
		r.deregister("a")
		r.converges()
	})
}

// Redis hangs: the cache reports that it is stale and keeps what it has. When Redis is back the
// report ends by itself.
func TestHealth(t *testing.T) {
	t.Parallel()
	for _, events := range []bool{true, false} {
		t.Run(fmt.Sprintf("events=%v", events), func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			r := newRig(t, redis.Target, Config{RefreshInterval: 50 * time.Millisecond}, withoutEvents(!events))
			r.register(testNode("a", 2))
			r.run()
			if h := r.Health(); h.Stale || !h.Synced || h.Nodes != 1 || h.Cells[0].Revision != 1 {
				t.Fatalf("at first: %+v", h)
			}
			redis.Pause()
			eventually(t, "stale", func() bool { return r.Health().Stale })
			if h := r.Health(); !h.Synced || h.Age < staleAfter*50*time.Millisecond || h.Nodes != 1 || h.Cells[0].Revision != 1 {
				t.Errorf("while Redis hangs: %+v", h)
			}
			if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"a"}) {
				t.Errorf("while Redis hangs: %v", got)
			}
			redis.Resume()
			eventually(t, "fresh", func() bool { return !r.Health().Stale })
			r.register(testNode("b", 2))
			r.converges()
		})
	}
}

// Redis is away when the cache starts and comes back before the caller's patience
// ends: that is a start like any other.
func TestStartWaitsForRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	r.register(testNode("a", 2))
	var fails atomic.Int64
	r.source.intercept(func(_ context.Context, _ cell.Revision, _ *cell.Changes, err error) error {
		if fails.Add(1) <= 3 {
			return errors.New("LOADING")
		}
		return err
	})
	r.run()
	r.agrees()
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target, Config{})
	redis.Pause()
	defer redis.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	if h := r.Health(); h.Synced || !h.Stale {
		t.Errorf("%+v", h)
	}
	select { // nothing runs that the caller would have to stop
	case <-r.done:
	default:
		t.Error("the loop runs")
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("never started", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, redistest.Shared(t), Config{})
		for range 2 {
			if err := r.Stop(deadline(t)); err != nil {
				t.Error(err)
			}
		}
		if err := r.Start(deadline(t)); !errors.Is(err, errStopped) {
			t.Errorf("start after stop: %v", err)
		}
		if err := r.Sync(deadline(t)); !errors.Is(err, errStopped) {
			t.Errorf("sync after stop: %v", err)
		}
	})
	t.Run("while a read hangs", func(t *testing.T) {
		t.Parallel()
		redis := redistest.New(t)
		r := newRig(t, redis.Target, Config{RefreshInterval: time.Millisecond}).run()
		redis.Pause()
		defer redis.Resume()
		synced := make(chan error, 1)
		go func() { synced <- r.Sync(context.Background()) }()
		if err := r.Stop(deadline(t)); err != nil {
			t.Error(err)
		}
		if err := <-synced; !errors.Is(err, errStopped) {
			t.Errorf("sync: %v", err)
		}
	})
	t.Run("together with start", func(t *testing.T) {
		t.Parallel()
		for range 50 {
			r := newRig(t, redistest.Shared(t), Config{}, withoutEvents(true))
			var both sync.WaitGroup
			both.Go(func() { _ = r.Start(deadline(t)) }) // stopped or not, both is well
			both.Go(func() {
				if err := r.Stop(deadline(t)); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			<-r.done
		}
	})
}

// One comparison serves all callers that wait at the same time.
func TestSyncIsShared(t *testing.T) {
	t.Parallel()
	const callers = 100
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true)).run()
	held, release := make(chan struct{}, 1), make(chan struct{})
	var first atomic.Bool
	r.source.intercept(func(_ context.Context, _ cell.Revision, _ *cell.Changes, err error) error {
		if first.CompareAndSwap(false, true) {
			held <- struct{}{}
			<-release
		}
		return err
	})
	calls := r.source.calls.Load()
	var all sync.WaitGroup
	all.Go(func() { r.sync() })
	<-held
	for range callers {
		all.Go(func() { r.sync() })
	}
	close(release)
	all.Wait()
	// Not all callers need have been there when the first one was released.
	if n := r.source.calls.Load() - calls; n > callers/2 {
		t.Errorf("%d reads for %d callers", n, callers+1)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	r.register(testNode("a", 2))
	r.run()
	r.heartbeat("a", `{}`)
	r.converges()
	if n := r.counter(r.metrics.events.WithLabelValues("node_heartbeat")); n != 1 {
		t.Errorf("%d heartbeats counted", n)
	}
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, want := range []string{
		"freeslot_cache_nodes", "freeslot_cache_revision", "freeslot_cache_age_seconds", "freeslot_cache_stale",
		"freeslot_cache_events_total", "freeslot_cache_events_dropped_total", "freeslot_cache_gaps_total",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not there: %s", want, strings.Join(names, " "))
		}
	}
}
