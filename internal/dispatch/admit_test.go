package dispatch

import (
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// A job above its tenant's priority is refused, wherever it comes from, unless an operator submits
// it again. The others of its batch are placed.
func TestPriorityOfATenant(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 10))
	rep := r.replica("r1", func(c *replicaConfig) {
		c.dispatch.Limits = func(name string) Limits {
			if name == tenant {
				return Limits{Priorities: 4}
			}
			return Limits{}
		}
	})
	submit := func(reqs ...Request) (codes []freeslot.Code) {
		codes = make([]freeslot.Code, len(reqs))
		rep.Submit(deadline(t), reqs, nil, func(i int, _ Accepted, err error) { codes[i] = freeslot.CodeOf(err) })
		return codes
	}
	with := func(priority int) *freeslot.Job {
		j := job()
		j.Priority = priority
		return j
	}
	got := submit(
		Request{Tenant: tenant, Job: with(9)}, Request{Tenant: tenant, Job: with(3)}, Request{Tenant: tenant, Job: with(4)},
		Request{Tenant: "other", Job: with(9)}, Request{Tenant: tenant, Job: with(9), Unlimited: true},
	)
	for i, want := range []freeslot.Code{freeslot.CodeInvalidArgument, "", freeslot.CodeInvalidArgument, "", ""} {
		if got[i] != want {
			t.Errorf("job %d gets %q, expected %q", i, got[i], want)
		}
	}
}

// A tenant that is not named has the default rate, in a bucket of its own. One that is named
// without a rate has none.
func TestDefaultRate(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 100))
	rep := r.replica("r1", func(c *replicaConfig) {
		c.dispatch.Rates = map[string]cell.Rate{"free": {}}
		c.dispatch.DefaultRate = &cell.Rate{PerSecond: 0.001, Burst: 2}
	})
	for name, want := range map[string]int{"first": 2, "second": 2, "free": 5} {
		reqs := make([]Request, 5)
		for i := range reqs {
			reqs[i] = Request{Tenant: name, Job: job()}
		}
		accepted := 0
		rep.Submit(deadline(t), reqs, nil, func(_ int, _ Accepted, err error) {
			if err == nil {
				accepted++
			} else if code := freeslot.CodeOf(err); code != freeslot.CodeRateLimited {
				t.Errorf("a job of %s is refused as %s, expected %s", name, code, freeslot.CodeRateLimited)
			}
		})
		if accepted != want {
			t.Errorf("%d jobs of %s are accepted, expected %d", accepted, name, want)
		}
	}
}
