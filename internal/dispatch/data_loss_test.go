package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// comeBack registers the agents again, as their next heartbeats do.
func comeBack(agents ...*agent) {
	for _, a := range agents {
		a.register()
	}
}

// wantAway: the job may be repeated, after the pause that the error names.
func wantAway(t *testing.T, err error) {
	t.Helper()
	if e := asError(t, err, freeslot.CodeUnavailable); e.RetryAfter <= 0 || e.RetryAfter > time.Second {
		t.Errorf("repeat it after %s", e.RetryAfter)
	}
}

// After a loss of all data no job is refused for good before the nodes had one limit to come back.
func TestDataLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	a := r.agent(node("n1", 100))
	rep := r.replica("x")
	if _, err := rep.place(ofService("other"), nil); freeslot.CodeOf(err) != freeslot.CodeNoMatchingNode {
		t.Errorf("before the loss: %v", err)
	}
	if err := r.client.Do(deadline(t), r.client.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	submit := func(service string) error {
		_, err := rep.place(ofService(service), nil)
		if code := freeslot.CodeOf(err); err != nil && code != freeslot.CodeUnavailable {
			t.Fatalf("a job of %s was answered %v", service, err)
		}
		return err
	}
	waittest.Until(t, "the loss is noticed", func() bool { return submit("echo") != nil && rep.cache.Size() == 0 })
	wantAway(t, submit("other"))
	comeBack(a)
	waittest.Until(t, "the node is back", func() bool { return submit("echo") == nil })
	wantAway(t, submit("other"))
	r.do("HSET", r.layout.Version(), "generation", "older", "generation_at_ms", "1")
	waittest.Until(t, "one limit is over", func() bool {
		_, err := rep.place(ofService("other"), nil)
		return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
	})
}

// A replica may start while Redis has no nodes, or when the first ones register.
func TestStartWithoutNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.do("DEL", r.layout.Version())
	_, err := r.replica("x").place(job(), nil) // its limit is longer than the test
	wantAway(t, err)
	rep := r.replica("brief", mortal(time.Second))
	waittest.Until(t, "one limit is over", func() bool {
		_, err := rep.place(job(), nil)
		return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
	})
	r.agent(node("n1", 1))
	other := r.replica("y")
	_, err = other.place(ofService("other"), nil)
	wantAway(t, err)
}

// A replica that starts beside a server that has just come back does not know what the server lost.
func TestStartAfterRestartOfRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.do("HSET", r.layout.Version(), "history", "of the former process")
	_, err := r.replica("x").place(job(), nil) // its limit is longer than the test
	wantAway(t, err)
	rep := r.replica("brief", mortal(time.Second))
	waittest.Until(t, "one limit is over", func() bool {
		_, err := rep.place(job(), nil)
		return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
	})
}

// A node that was reaped may come back; one that left, or no longer has a service, is not awaited.
func TestOnlyNodeLeaves(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*replicaConfig){
		"by events":      func(*replicaConfig) {},
		"by comparisons": func(c *replicaConfig) { c.blind, c.cache = true, cache.Config{RefreshInterval: 10 * time.Millisecond} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Shared(t))
			agents := make(map[string]*agent)
			for _, id := range []string{"reaped", "drained", "left", "changed"} {
				n := node(id, 1)
				n.Services[0].Name = id
				agents[id] = r.agent(n)
			}
			rep := r.replica("x", change)
			agents["drained"].drain()
			waittest.Until(t, "the node drains", func() bool { n, ok := rep.cache.Node("drained"); return ok && n.Draining() })

			for _, id := range []string{"reaped", "drained"} {
				n, _ := rep.cache.Node(id)
				n.MarkSilent() // as it is after a limit
				r.reap(agents[id])
			}
			if _, err := r.cell.Deregister(deadline(t), "left", agents["left"].epoch); err != nil {
				t.Fatal(err)
			}
			agents["changed"].node.Services = []freeslot.Service{{Name: "another"}}
			agents["changed"].register()
			waittest.Until(t, "all is noticed", func() bool {
				n, ok := rep.cache.Node("changed")
				return rep.cache.Size() == 1 && ok && n.Profile().Node().Services[0].Name == "another"
			})

			// On a busy machine the replica is out of touch for moments.
			place := func(j *freeslot.Job) (err error) {
				t.Helper()
				waittest.Until(t, "an answer in touch with Redis", func() bool {
					_, err = rep.place(j, nil)
					return err == nil || !strings.Contains(err.Error(), "lost touch")
				})
				return err
			}
			wantAway(t, place(ofService("reaped")))
			large := ofService("reaped")
			large.Slots = 2
			wantCode(t, place(large), freeslot.CodeNoMatchingNode)
			for _, id := range []string{"drained", "left", "changed"} {
				wantCode(t, place(ofService(id)), freeslot.CodeNoMatchingNode)
			}
		})
	}
}

// A reaped node is awaited for one limit.
func TestReapedNodeStaysAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	a := r.agent(node("n1", 1))
	patient := r.replica("x") // its limit is longer than the test
	rep := r.replica("brief", mortal(1200*time.Millisecond))
	for _, rep := range []*replica{patient, rep} {
		waittest.Until(t, "the node is reaped", func() bool { return rep.cache.Size() == 0 })
	}
	_, err := patient.place(job(), nil)
	wantAway(t, err)
	waittest.Until(t, "one limit is over", func() bool {
		_, err := rep.place(job(), nil)
		return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
	})
	waittest.Until(t, "the node is back", func() bool {
		comeBack(a) // else it is soon silent again
		_, err := rep.place(job(), nil)
		return err == nil
	})
}

// returning brings a node back between the search of a submit and the look at the nodes away.
type returning struct {
	*cache.Cache
	back func()
}

func (r *returning) MayReturn(job *freeslot.Job) bool {
	r.back()
	return r.Cache.MayReturn(job)
}

// A submit is not refused for good because its node comes back meanwhile, and is thus neither away
// nor among those that were searched.
func TestNodeReturnsDuringSearch(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	fleet := new(returning)
	rep := r.replica("x", func(c *replicaConfig) {
		c.nodes = func(c *cache.Cache) Nodes { fleet.Cache = c; return fleet }
	})
	fleet.back = func() {
		if rep.cache.Size() == 0 {
			r.agent(node("n1", 1))
			waittest.Until(t, "the node is back", func() bool { return rep.cache.Size() == 1 && !rep.cache.MayReturn(job()) })
		}
	}
	_, err := rep.place(job(), nil)
	wantAway(t, err)
	rep.mustPlace(job(), nil)
}

func (a *agent) drain() {
	a.rig.t.Helper()
	if err := a.cell.Drain(deadline(a.rig.t), a.node.ID); err != nil {
		a.rig.t.Fatal(err)
	}
}

// reap takes a node out as if it had been silent.
func (r *rig) reap(a *agent) {
	r.t.Helper()
	r.do("HSET", r.layout.Node(a.node.ID), "registered_at_ms", "1")
	if reaped, err := a.cell.Reap(deadline(r.t), a.node.ID, a.epoch); err != nil || !reaped.Gone {
		r.t.Fatalf("%+v, %v; want no error, reaped.Gone", reaped, err)
	}
}
