package cache

import (
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// says fails unless the cache, its mirror and Redis have these resources for the node.
func (r *rig) says(when string, mirror *mapMirror, id, want string) {
	r.t.Helper()
	r.converges()
	mirror.mu.Lock()
	mirrored := string(mirror.nodes[id].Resources)
	mirror.mu.Unlock()
	if s, _ := r.State(id); string(s.Resources) != want || mirrored != want {
		r.t.Errorf("%s: the cache says %q, the mirror %q, expected %q", when, s.Resources, mirrored, want)
	}
}

// late fails unless a replica that begins now reads so of the node's machine.
func (r *rig) late(when, id, want string) {
	r.t.Helper()
	other := New(Config{RefreshInterval: never}, []Feed{{Source: r.source}}, zap.NewNop(), nil)
	if err := other.Start(deadline(r.t)); err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		if err := other.Stop(deadline(r.t)); err != nil {
			r.t.Error(err)
		}
	}()
	if s, ok := other.State(id); !ok || string(s.Resources) != want {
		r.t.Errorf("%s: a replica that begins then says %q, expected %q", when, s.Resources, want)
	}
}

// The last resources of a node stay in force through heartbeats without any, in every replica,
// whenever it started.
func TestResourcesStayInForce(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		mirror := newMap()
		r := newRig(t, redis, Config{RefreshInterval: never, Mirror: mirror})
		n := testNode("a", 2)
		r.register(n)
		r.run()
		calls := r.source.calls.Load()
		r.heartbeat("a", "")
		r.says("nothing was said yet", mirror, "a", "")
		for _, said := range []string{`{"cpu_usage":0.5}`, `{}`} {
			r.heartbeat("a", said)
			r.says("said", mirror, "a", said)
			for range 3 {
				r.heartbeat("a", "")
				r.says("a sign of life", mirror, "a", said)
			}
			n.MaxConcurrency++
			r.register(n)
			r.says("another profile", mirror, "a", said)
			r.heartbeat("a", "")
			r.says("a sign of life since", mirror, "a", said)
		}
		if reads := r.source.calls.Load() - calls; reads != 0 {
			t.Errorf("%d reads", reads)
		}
		r.late("signs of life alone", "a", `{}`)
		r.epochs["a"] = cell.NewEpoch() // the agent restarts
		r.register(n)
		r.heartbeat("a", "")
		r.says("another agent", mirror, "a", "")
		r.late("another agent", "a", "")
	})
}

// If the event with resources is lost, the next event of any node brings them, though it does not
// have them.
func TestLostResources(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		mirror := newMap()
		r := newRig(t, redis, Config{RefreshInterval: never, Mirror: mirror})
		r.register(testNode("a", 2))
		r.register(testNode("b", 2))
		r.run()
		layout := r.cell.Layout()
		for i, next := range []string{"a", "b"} {
			r.heartbeat("b", `{"n":"before"}`)
			r.says("before", mirror, "b", `{"n":"before"}`)
			// As the script does, but for the event.
			lost := fmt.Sprintf(`{"n":%d}`, i)
			revision, err := r.do("HINCRBY", layout.Version(), "revision", "1").AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			r.do("ZADD", layout.Revisions(), itoa(int(revision)), "b")
			r.do("SET", layout.Metrics("b"), lost)
			if s, _ := r.State("b"); string(s.Resources) != `{"n":"before"}` {
				t.Errorf("nothing was told, and the cache says %s", s.Resources)
			}
			gaps := r.counter(r.metrics.gaps)
			r.heartbeat(next, "")
			r.says("after an event of "+next, mirror, "b", lost)
			if n := r.counter(r.metrics.gaps) - gaps; n != 1 {
				t.Errorf("%d gaps", n)
			}
			r.heartbeat("b", "")
			r.says("after the next one", mirror, "b", lost)
		}
	})
}

// The resources in an agent's event can be any text; a listing is still JSON.
func TestResourcesThatAreNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	r.register(testNode("a", 2))
	r.run()
	r.heartbeat("a", `{"x":1}`)
	r.sync()
	known, _ := r.nodes.Load("a")
	broken := `{"x":`
	known.resources.Store(&broken)
	if s, _ := r.State("a"); s.Resources != nil {
		t.Errorf("shown as %s", s.Resources)
	}
}
