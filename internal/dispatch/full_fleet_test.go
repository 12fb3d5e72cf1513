package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// While a full fleet's profiles change all the time, jobs wait by the class list that exists. The
// list is brought up to date only before a client learns that no node fits.
func TestFullFleetMakesNoLists(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	full, draining := r.agent(node("full", 2)), r.agent(node("draining", 2))
	spied := new(spy)
	rep := r.replica("r1", spied.on)
	rep.mustPlace(&freeslot.Job{Service: "echo", Slots: 2}, nil)
	draining.heartbeat(freeslot.StatusDraining)
	full.heartbeat(freeslot.StatusDraining)
	waittest.Until(t, "the drain", func() bool {
		a, _ := rep.cache.Node("full")
		b, _ := rep.cache.Node("draining")
		return a.Draining() && b.Draining()
	})
	churn := func(i int) {
		t.Helper()
		other := node("other", 2)
		other.Services[0].Name = fmt.Sprintf("other-%d", i)
		r.agent(other)
		waittest.Until(t, "the profile", func() bool {
			n, known := rep.cache.Node("other")
			return known && n.Profile().Node().Services[0].Name == other.Services[0].Name
		})
	}
	place := 0
	for i := range 5 {
		churn(i)
		for _, slots := range []int{1, 2} {
			place++
			rep.mustWait(&freeslot.Job{Service: "echo", Slots: slots}, place, nil)
		}
	}
	if n := spied.settled.Load(); n != 0 {
		t.Errorf("lists were settled %d times for a fleet that is full", n)
	}
	for i, j := range []freeslot.Job{{Service: "echo", Slots: 3}, {Service: "unknown"}} {
		_, err := rep.place(&j, nil)
		wantCode(t, err, freeslot.CodeNoMatchingNode)
		// Once before the nodes that are away are looked at, and once after.
		if n := spied.settled.Load(); n != 2*int64(i+1) {
			t.Errorf("settled %d times before %d answers that no node fits", n, i+1)
		}
	}
}

// While no cell answers, the replica does not know that no node fits, however recent its nodes are.
func TestNoNodeWithEveryCellAway(t *testing.T) {
	t.Parallel()
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			t.Parallel()
			redis := make([]*redistest.Server, servers)
			targets := make([]*redistest.Target, servers)
			for i := range redis {
				redis[i] = redistest.New(t, redistest.AppendOnly("always"))
				targets[i] = redis[i].Target
			}
			r := newCells(t, servers, targets...)
			for i := range r.layouts {
				r.agent(r.nodesIn(i, 1, 1000)[0])
			}
			rep := r.replica("r1", quick, func(c *replicaConfig) {
				c.dispatch.SubmitTimeout = 400 * time.Millisecond
				c.cache.RefreshInterval = patience / 4 // stale after three; it bounds the pause between attempts
			})
			unknown := &freeslot.Job{Service: "unknown"}
			waittest.Until(t, "no matching node", func() bool {
				_, err := rep.place(unknown, nil)
				return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
			})
			for _, s := range redis {
				s.Kill()
			}
			waittest.Until(t, "no cell answers", func() bool {
				_, err := rep.place(job(), nil)
				wantCode(t, err, freeslot.CodeUnavailable)
				return rep.failing.load() == rep.allCells
			})
			if rep.cache.Stale() {
				t.Error("this is about a cache that is not stale")
			}
			_, err := rep.place(unknown, nil)
			if e := asError(t, err, freeslot.CodeUnavailable); e.RetryAfter <= 0 {
				t.Errorf("%+v; want e.RetryAfter > 0", e)
			}
			for _, s := range redis {
				s.Restart()
			}
			// There is no other submit: the replyKeepers learn that the cells are back.
			waittest.Until(t, "every cell answers", func() bool {
				_, err := rep.place(unknown, nil)
				return freeslot.CodeOf(err) == freeslot.CodeNoMatchingNode
			})
		})
	}
}
