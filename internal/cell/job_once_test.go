package cell

import (
	"testing"

	"github.com/freeslot/freeslot"
)

// TestOnce: the job of a run is created once although its record is gone.
func TestOnce(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		s := submission("", "n1")
		s.JobID, s.Once = r.NewJobID(), "cron x 1"
		if got := r.enqueued(s)[0]; !got.Assigned || got.Owner != "" {
			t.Fatalf(`%+v; want got.Assigned, got.Owner == ""`, got)
		}
		if got := r.enqueued(s)[0]; !got.Assigned || !got.Repeated {
			t.Errorf("while it runs: %+v", got)
		}
		r.end("n1", epoch, s.JobID)
		if got := r.enqueued(s)[0]; !got.Repeated {
			t.Errorf("while its record is kept: %+v", got)
		}
		r.do("DEL", r.l.Job(s.JobID))
		other := *s.Job
		other.Priority = 3
		for _, again := range []Submission{s, {JobID: s.JobID, Tenant: s.Tenant, Job: &other, Once: s.Once}} {
			r.unchanged("again", func() {
				if got := r.enqueued(again)[0]; got.Owner != s.JobID || got.Assigned || got.Waiting {
					t.Errorf("after that: %+v", got)
				}
			}, nil)
		}
		set := make([]*Cell, r.Index()+1)
		set[r.Index()] = r.Cell
		if err := NewSet(set...).ForgetOnce(r.ctx(), s.Tenant, s.JobID, s.Once); err != nil {
			t.Error(err)
		}
		if left := r.int("PTTL", onceKey(r.l, s.Tenant, s.Once)); left <= 0 || left > onceStays.Milliseconds() {
			t.Errorf("the marker stays for %d ms", left)
		}
		// A client's key is another one, whatever it is.
		s.Job = &freeslot.Job{Service: "echo", IdempotencyKey: s.Once}
		s.JobID, s.Once = r.NewJobID(), ""
		if got := r.enqueued(s)[0]; got.Owner != "" {
			t.Errorf(`%+v; want got.Owner == ""`, got)
		}
	})
}
