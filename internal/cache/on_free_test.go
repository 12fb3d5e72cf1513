package cache

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// told collects the nodes that OnFree reports.
func (r *rig) told() chan string {
	told := make(chan string, 1000)
	r.OnFree(func(n *selection.Node) { told <- n.ID() })
	return told
}

// quiet waits until the cache has applied and reported every event so far.
func (r *rig) quiet() {
	r.t.Helper()
	r.converges()
	r.sync() // behind them, as the loop does one after the other
}

func drained(told chan string) (ids []string) {
	for range len(told) {
		ids = append(ids, <-told)
	}
	return ids
}

// TestOnFree: OnFree reports every way in which a node becomes able to take a job, and no other
// change.
func TestOnFree(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis, Config{RefreshInterval: never})
		told := r.told()
		r.register(testNode("old", 1))
		r.register(testNode("full", 1))
		r.submit("full")
		r.run()
		live := func() *selection.Node {
			n, ok := r.Node("n")
			if !ok {
				t.Fatal("the node is missing")
			}
			return n
		}
		status := func(s freeslot.Status) {
			hb := cell.Heartbeat{Node: "n", Epoch: r.epochs["n"], Status: s}
			if _, err := r.cell.Heartbeat(deadline(t), hb); err != nil {
				t.Fatal(err)
			}
		}
		var job string
		for _, step := range []struct {
			what string
			do   func()
			want []string
		}{
			{"the first load", func() {}, []string{"old"}},
			{"register", func() { r.register(testNode("n", 1)) }, []string{"n"}},
			{"heartbeat", func() { r.heartbeat("n", "{}") }, nil},
			{"full", func() { job = r.submit("n") }, nil},
			{"heartbeat when full", func() { r.heartbeat("n", "{}") }, nil},
			{"complete", func() { r.complete("n", job) }, []string{"n"}},
			{"full again", func() { job = r.submit("n") }, nil},
			{"complete, known already", func() { live().SetUsed(0); r.complete("n", job) }, []string{"n"}},
			{"drain", func() { status(freeslot.StatusDraining) }, nil},
			{"undrain", func() { status(freeslot.StatusOnline) }, []string{"n"}},
			{"silent", func() { live().MarkSilent() }, nil},
			{"heard", func() { r.heartbeat("n", "{}") }, []string{"n"}},
			{"refused, full", func() { r.Refused(cell.Refusal{Node: "n", Reason: cell.RefusedFull, Used: 1, MaxConcurrency: 1}) }, nil},
			{"refused, room", func() { r.Refused(cell.Refusal{Node: "n", Reason: cell.RefusedFull, Used: 0, MaxConcurrency: 1}) }, []string{"n"}},
			{"deregister", func() { r.deregister("n") }, nil},
		} {
			step.do()
			if step.what != "refused, full" {
				r.quiet()
			}
			if got := drained(told); !slices.Equal(got, step.want) {
				t.Errorf("%s: told %v, expected %v", step.what, got, step.want)
			}
		}
	})
}

// OnFree also reports what a comparison brings instead of events, though the known state has not
// changed.
func TestOnFreeWithoutEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	told := r.told()
	r.register(testNode("n", 1))
	r.register(testNode("other", 1))
	r.run()
	if got := drained(told); !slices.Equal(got, []string{"n", "other"}) {
		t.Fatalf("told %v", got)
	}
	r.complete("n", r.submit("n"))
	r.submit("other")
	r.sync()
	if got := drained(told); !slices.Equal(got, []string{"n"}) {
		t.Errorf("told %v", got)
	}
}

// TestOnFreeProperty: in any order of changes, OnFree reports a node that takes jobs and did not
// before, and no node that takes none.
func TestOnFreeProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
		defer c.cancel()
		f, told := c.followers[0], 0
		able := func() bool {
			n, ok := c.Node("n")
			if !ok {
				return false
			}
			used, _ := n.Load()
			_, heard := n.SeenAt()
			return used < 2 && !n.Draining() && heard
		}
		c.OnFree(func(*selection.Node) {
			told++
			if !able() {
				t.Fatal("told of a node that takes nothing")
			}
		})
		profile, _ := json.Marshal(testNode("n", 2))
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before := able()
			told = 0
			e := &events.Event{
				Kind: rapid.SampledFrom([]events.Kind{events.Register, events.Heartbeat, events.SlotFull, events.SlotFree, events.Offline}).Draw(t, "kind"),
				Node: "n", Epoch: "e", Used: rapid.IntRange(0, 2).Draw(t, "used"),
				Status: rapid.SampledFrom([]freeslot.Status{freeslot.StatusOnline, freeslot.StatusDraining}).Draw(t, "status"),
			}
			n, known := c.Node("n")
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 0:
				f.put(&cell.NodeState{Node: testNode("n", 2), Epoch: "e", Status: e.Status, Used: e.Used})
			case what == 1:
				c.Refused(cell.Refusal{Node: "n", Reason: cell.RefusedFull, Used: e.Used})
			case what == 2:
				c.Refused(cell.Refusal{Node: "n", Reason: cell.RefusedSilent})
			case what == 3 && known: // an answer: its caller knows it already
				n.SetUsed(e.Used)
				continue
			default:
				if e.Kind == events.Register {
					e.Body = string(profile)
				}
				f.apply(e)
			}
			if able() && !before && told != 1 || told > 1 {
				t.Fatalf("told %d times", told)
			}
		}
	})
}

// OnFree reports a node that was silent for too long and is heard again.
func TestOnFreeAfterSilence(t *testing.T) {
	t.Parallel()
	c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
	defer c.cancel()
	told := 0
	c.OnFree(func(*selection.Node) { told++ })
	f := c.followers[0]
	f.put(&cell.NodeState{Node: testNode("n", 1), Epoch: "e", Status: freeslot.StatusOnline})
	c.clock.origin = c.clock.origin.Add(-2 * c.SilenceLimit())
	f.apply(&events.Event{Kind: events.SlotFull, Node: "n", Epoch: "e", Status: freeslot.StatusOnline})
	if told != 1 {
		t.Fatalf("told %d times before it is heard", told)
	}
	f.apply(&events.Event{Kind: events.Heartbeat, Node: "n", Epoch: "e", Status: freeslot.StatusOnline, AtMS: c.clock.now() / int64(time.Millisecond)})
	if told != 2 {
		t.Fatalf("told %d times", told)
	}
}
