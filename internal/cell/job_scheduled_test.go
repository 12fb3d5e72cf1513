package cell

import (
	"strconv"
	"testing"

	"github.com/freeslot/freeslot"
)

// later is a submission for an hour from now.
func (r *rig) later() Submission {
	s := submission("r1")
	s.Candidates = nil
	s.Job.RunAtMS = r.nowMS() + 3_600_000
	return s
}

// TestScheduled: a job for later stands in no queue, has its deadline counted from its
// time, and comes to its queue charged to its tenant once that time has come.
func TestScheduled(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		s := r.later()
		s.Job.TimeoutMS = 5_000
		for _, again := range []bool{false, true} {
			if p := r.enqueued(s)[0]; !p.Waiting || p.Assigned || p.Position != 0 {
				t.Errorf("again %v: %+v", again, p)
			}
		}
		if got := r.status(s.JobID); got.State != freeslot.StateScheduled || got.DeadlineMS != s.Job.RunAtMS+5_000 || got.RunAtMS != s.Job.RunAtMS {
			t.Errorf("%+v; want got.State == freeslot.StateScheduled, got.DeadlineMS == s.Job.RunAtMS+5_000, got.RunAtMS == %v", got, s.Job.RunAtMS)
		}
		if page, err := r.Jobs(r.ctx(), JobFilter{}, "", 10); err != nil || len(page.Jobs) != 1 || page.Jobs[0].RunAtMS != s.Job.RunAtMS {
			t.Errorf("%+v, %v; want no error, len(page.Jobs) == 1, page.Jobs[0].RunAtMS == %v", page, err, s.Job.RunAtMS)
		}
		if d, err := r.Due(r.ctx(), 10); err != nil || len(d.Classes) != 0 || d.Expired != 0 {
			t.Errorf("%+v, %v, expected 0 classes, 0 expired", d, err)
		}
		r.sound()
		// As a reader sees it whose job comes to its queue between the two reads.
		r.do("ZADD", r.l.Due(), strconv.FormatInt(s.Job.RunAtMS+5_000, 10), s.JobID)
		if got := r.status(s.JobID); got.State != freeslot.StateScheduled || got.RunAtMS != 0 {
			t.Errorf("due for its deadline: %+v", got)
		}
		r.do("ZADD", r.l.Due(), strconv.FormatInt(r.nowMS()-1, 10), s.JobID)
		d, err := r.Due(r.ctx(), 10)
		if err != nil || len(d.Classes) != 1 {
			t.Fatalf("%+v, %v, expected 1 class", d, err)
		}
		if got := r.status(s.JobID); got.State != freeslot.StateWaiting || got.Position != 1 || got.RunAtMS != 0 {
			t.Errorf("%+v; want got.State == freeslot.StateWaiting, got.Position == 1, got.RunAtMS == 0", got)
		}
		if page, err := r.Jobs(r.ctx(), JobFilter{}, "", 10); err != nil || len(page.Jobs) != 1 || page.Jobs[0].RunAtMS != 0 {
			t.Errorf("which is due for its deadline alone: %+v, %v", page, err)
		}
		if tags := r.hash(r.l.Fair(d.Classes[0].ID)); tags["t"+s.Tenant] != "1024" {
			t.Errorf("tags %v", tags)
		}
		if taken, err := r.Take(r.ctx(), "n1", []string{d.Classes[0].ID}, 0); err != nil || taken.Jobs != 1 {
			t.Errorf("%+v, %v, expected 1 job", taken, err)
		}
		r.end("n1", epoch, s.JobID)
		r.sound()
	})
}

// TestScheduledCancel: it ends at once.
func TestScheduledCancel(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		s := r.later()
		r.enqueued(s)
		if got, err := r.Cancel(r.ctx(), "", s.JobID); err != nil || got.State != freeslot.StateCancelled {
			t.Errorf("%+v, %v, expected state %s", got, err, freeslot.StateCancelled)
		}
		if r.exists(r.l.Due()) {
			t.Error("it is due all the same")
		}
		r.sound()
	})
}

// TestIdempotency: a key makes one job, also within one call, and tells one that differs.
func TestIdempotency(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		keyed := func(tenant string, slots int) Submission {
			s := submission("")
			s.Candidates, s.Tenant, s.Job.Slots, s.Job.IdempotencyKey = nil, tenant, slots, "a key {of} any text"
			return s
		}
		first, same, other, differs := keyed("acme", 1), keyed("acme", 1), keyed("b", 1), keyed("acme", 2)
		got := r.enqueued(first, same, other, differs)
		if p := got[0]; !p.Waiting || p.Owner != "" {
			t.Errorf("first: %+v", p)
		}
		if p := got[1]; p.Owner != first.JobID || p.Differs || p.Waiting {
			t.Errorf("the same: %+v", p)
		}
		if p := got[2]; !p.Waiting || p.Owner != "" {
			t.Errorf("another tenant's: %+v", p)
		}
		if p := got[3]; p.Owner != first.JobID || !p.Differs {
			t.Errorf("another job: %+v", p)
		}
		if p := r.enqueued(first)[0]; !p.Waiting || p.Owner != "" {
			t.Errorf("repeated: %+v", p)
		}
		r.sound()
	})
}
