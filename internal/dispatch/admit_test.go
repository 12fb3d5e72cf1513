package dispatch

import (
	"fmt"
	"slices"
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

// One tenant submits jobs with a thousand different requirements, so that each waits in a queue of
// its own. It gets its share of the queues, and every job of another tenant that must wait still
// does.
func TestManyKindsOfOneTenant(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{1, 4} {
		t.Run(fmt.Sprint("cells=", cells), func(t *testing.T) {
			t.Parallel()
			const most = 64
			r := newCells(t, cells, redistest.Shared(t))
			for i := range 2 * cells {
				r.agent(node(fmt.Sprint("n", i), 1))
			}
			rep := r.replica("r1", func(c *replicaConfig) {
				c.dispatch.Limits = func(string) Limits { return Limits{Kinds: most} }
			})
			submit := func(tenant, label string, jobs int) (accepted int) {
				reqs := make([]Request, jobs)
				for i := range reqs {
					j := job()
					j.Requirement.LabelRules = []freeslot.LabelRule{{
						Label: "region", Operator: freeslot.LabelNotIn, Values: []string{fmt.Sprint(label, i)},
					}}
					reqs[i] = Request{Tenant: tenant, Job: j}
				}
				rep.Submit(deadline(t), reqs, nil, func(_ int, _ Accepted, err error) {
					if err == nil {
						accepted++
					} else if code := freeslot.CodeOf(err); code != freeslot.CodeOverloaded {
						t.Errorf("a job of %s is refused as %s, expected %s", tenant, code, freeslot.CodeOverloaded)
					}
				})
				return accepted
			}
			first := submit("attacker", "a", 550)
			second := submit("attacker", "b", 550)
			// In its first frame all cells are asked at the same time, and each counts its own.
			if most := cells*most + 2*cells; first > most || second > most {
				t.Errorf("%d and %d jobs of the attacker are accepted, expected at most %d", first, second, most)
			}
			if again := submit("attacker", "c", 20); again > 0 {
				t.Errorf("%d further jobs of the attacker are accepted, expected none", again)
			}
			if got := submit("victim", "v", 30); got != 30 {
				t.Errorf("%d of 30 jobs of the victim are accepted, expected all", got)
			}
		})
	}
}

// Rules decide about every job, wherever it comes from, as it was asked for. What they note and set
// is in the record; the caller's job stays as it is.
func TestAdmitByRules(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 10))
	rep := r.replica("r1", func(c *replicaConfig) {
		c.dispatch.Admit = func(q *Request) error {
			if q.Job.Admission != nil || q.Job.Requirement.PreferredPool != "" {
				t.Errorf("%+v; want the job as it was asked for", q.Job)
			}
			if q.Job.AffinityKey == "bot" {
				return &freeslot.Error{Code: freeslot.CodeNotAdmitted, Message: "no bots"}
			}
			job := *q.Job
			job.Admission = &freeslot.Admission{Chain: "canary", Outcome: "variant", PreferredPool: "b"}
			job.Requirement.PreferredPool = "b"
			q.Job = &job
			return nil
		}
	})
	with := func(key string) *freeslot.Job {
		j := job()
		j.AffinityKey = key
		return j
	}
	before := with("user") // as a requeue reads it from the scheduler
	before.Admission = &freeslot.Admission{Chain: "canary", Outcome: "variant", PreferredPool: "old"}
	before.Requirement.PreferredPool = "old"
	reqs := []Request{
		{Tenant: tenant, Job: with("bot")},
		{Tenant: tenant, Job: with("user")},
		{Tenant: tenant, Job: with("bot"), Unlimited: true},
		{Tenant: tenant, Job: with("bot"), Run: &Run{JobID: r.cell.NewJobID(), Once: "x"}},
		{Tenant: tenant, Job: before},
	}
	codes, ids := make([]freeslot.Code, len(reqs)), make([]string, len(reqs))
	rep.Submit(deadline(t), reqs, nil, func(i int, a Accepted, err error) { codes[i], ids[i] = freeslot.CodeOf(err), a.JobID })
	if want := []freeslot.Code{freeslot.CodeNotAdmitted, "", freeslot.CodeNotAdmitted, freeslot.CodeNotAdmitted, ""}; !slices.Equal(codes, want) {
		t.Fatalf("%q; want %q", codes, want)
	}
	for _, i := range []int{1, 4} {
		spec, _, err := r.cell.Spec(deadline(t), ids[i])
		if err != nil || spec.Requirement.PreferredPool != "b" || spec.Admission == nil || spec.Admission.Chain != "canary" {
			t.Errorf("job %d: %+v, %v; want what the rules noted and set", i, spec, err)
		}
	}
	if before.Requirement.PreferredPool != "old" || before.Admission.PreferredPool != "old" {
		t.Errorf("%+v; want the caller's job as it was", before)
	}
}
