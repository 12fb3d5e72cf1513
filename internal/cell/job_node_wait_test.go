package cell

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// forNode makes a submission that no node fits. It may wait for one for a minute.
func forNode(s *Submission) { s.NodeWait = time.Minute }

// noNode lets the time pass that a job may wait for a node.
func (r *rig) noNode(job string) {
	r.t.Helper()
	past := strconv.FormatInt(r.nowMS()-1, 10)
	r.do("HSET", r.l.Job(job), "node_by", past)
	r.do("ZADD", r.l.Due(), "XX", past, job)
}

// judged does what is due, and says what becomes of a job.
func (r *rig) judged(job string, fits bool) Due {
	r.t.Helper()
	d, err := r.Due(r.ctx(), 10, Judged{JobID: job, Fits: fits})
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// TestNodeWait: a job that no node fits is told of after its time, once a second to whoever asks. A
// caller that knows of no node lets it expire.
func TestNodeWait(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		before := r.nowMS()
		job, other := r.waits("r1", forNode, slots(3)), r.waits("r1", forNode)
		s := r.status(job)
		if first, last := before+60_000, r.nowMS()+60_000; s.NodeByMS < first || s.NodeByMS > last || s.State != freeslot.StateWaiting || s.Position != 1 {
			t.Errorf("%+v; want s.NodeByMS in %d to %d, s.State == freeslot.StateWaiting, s.Position == 1", s, first, last)
		}
		r.unchanged("before its time", func() {
			if d := r.due(10); !cmp.Equal(d, Due{}) {
				t.Errorf("%+v; want that nothing was done", d)
			}
		}, nil)
		r.sound()
		r.noNode(job)
		want := Due{Unplaced: []Unplaced{{JobID: job, Slots: 3, Class: ClassOf(testJob())}}}
		if d := r.due(10); !cmp.Equal(d, want) {
			t.Errorf("%+v; want %+v", d, want)
		}
		next := r.scores(r.l.Due())[job]
		if now := float64(r.nowMS()); next > now+1000 || next <= now-60_000 {
			t.Errorf("the next look is at %.0f; want one within a second from %.0f", next, now)
		}
		// The caller is gone, and another one asks later.
		r.noNode(job)
		if d := r.due(10); !cmp.Equal(d, want) {
			t.Errorf("a second time: %+v; want %+v", d, want)
		}
		if d := r.judged(job, false); d.Expired != 1 || len(d.Unplaced) != 0 || len(d.Classes) != 0 {
			t.Errorf("%+v; want d.Expired == 1, no Unplaced, no Classes", d)
		}
		for name, s := range map[string]freeslot.JobStatus{"record": r.status(job), "reply": r.told("r1")[0].Status} {
			if s.State != freeslot.StateExpired || s.Error == nil || s.Error.Code != freeslot.JobErrorNoMatchingNode || s.NodeByMS != 0 {
				t.Errorf("%s: %+v, %v; want s.State == freeslot.StateExpired, s.Error.Code == no_matching_node, s.NodeByMS == 0", name, s, s.Error)
			}
		}
		if s := r.status(other); s.State != freeslot.StateWaiting || s.Position != 1 {
			t.Errorf("the other job: %+v; want s.State == freeslot.StateWaiting, s.Position == 1", s)
		}
		r.unchanged("a repetition", func() { r.judged(job, false) }, nil)
		r.sound()
	})
}

// TestNodeWaitEnds: once a node fits, the job waits like any other, and its deadline counts.
func TestNodeWaitEnds(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for name, change := range map[string]func(*Submission){"no deadline": func(*Submission) {}, "deadline": timeout(3_600_000)} {
			job := r.waits("", forNode, change)
			r.noNode(job)
			r.due(10)
			if d := r.judged(job, true); d.Expired != 0 {
				t.Errorf("%s: %+v; want d.Expired == 0", name, d)
			}
			s := r.status(job)
			if at := r.scores(r.l.Due())[job]; s.NodeByMS != 0 || s.State != freeslot.StateWaiting || at != float64(s.DeadlineMS) {
				t.Errorf("%s: %+v, due at %.0f; want s.NodeByMS == 0, s.State == freeslot.StateWaiting, due at the deadline", name, s, at)
			}
			r.unchanged(name+": nothing is due", func() { r.judged(job, false) }, nil)
			r.sound()
		}
	})
}

// TestNodeWaitAndDeadline: the earlier one of both ends the job.
func TestNodeWaitAndDeadline(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		soon, late := r.waits("", forNode, timeout(30_000)), r.waits("", forNode, timeout(90_000))
		due := r.scores(r.l.Due())
		if s := r.status(soon); due[soon] != float64(s.DeadlineMS) {
			t.Errorf("due at %.0f, expected at the deadline %d", due[soon], s.DeadlineMS)
		}
		if s := r.status(late); due[late] != float64(s.NodeByMS) {
			t.Errorf("due at %.0f, expected when a node must be there, %d", due[late], s.NodeByMS)
		}
		r.pass(soon)
		if d := r.due(10); d.Expired != 1 || len(d.Unplaced) != 0 {
			t.Errorf("%+v; want d.Expired == 1, no Unplaced", d)
		}
		if s := r.status(soon); s.State != freeslot.StateExpired || s.Error != nil {
			t.Errorf("%+v; want s.State == freeslot.StateExpired, s.Error == nil", s)
		}
		// Both have passed when somebody looks.
		r.noNode(late)
		r.pass(late)
		if d := r.due(10); d.Expired != 1 || len(d.Unplaced) != 0 {
			t.Errorf("%+v; want d.Expired == 1, no Unplaced", d)
		}
		r.sound()
	})
}

// TestNodeWaitOfBegun: a job that has begun never expires for lack of a node, nor is it held to
// that time when it waits again. Its deadline stays.
func TestNodeWaitOfBegun(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		job := r.waits("", forNode, timeout(7_200_000))
		epoch := r.register(testNode("n1", 1))
		if n := r.take("n1"); n != 1 {
			t.Fatalf("%d jobs began; want 1", n)
		}
		deadline := float64(r.status(job).DeadlineMS)
		r.sound()
		r.noNode(job)
		if d := r.judged(job, false); !cmp.Equal(d, Due{}) {
			t.Errorf("while it runs: %+v; want that nothing was done", d)
		}
		if at := r.scores(r.l.Due())[job]; at != deadline {
			t.Errorf("due at %.0f, expected at the deadline %.0f", at, deadline)
		}
		failed := r.fails("n1", epoch, job, Retry)
		failed.RetryDelay = time.Hour
		r.complete1(failed)
		r.unchanged("in the pause", func() { r.judged(job, false) }, nil)
		r.pass(job)
		r.due(10)
		r.noNode(job)
		if d := r.judged(job, false); !cmp.Equal(d, Due{}) {
			t.Errorf("when it waits again: %+v; want that nothing was done", d)
		}
		if s := r.status(job); s.State != freeslot.StateWaiting || s.Attempt != 1 || s.NodeByMS != 0 {
			t.Errorf("%+v; want s.State == freeslot.StateWaiting, s.Attempt == 1, s.NodeByMS == 0", s)
		}
		r.sound()
		// A job without a deadline is due no more.
		r.cancelWaiting()
		job = r.waits("", forNode)
		if n := r.take("n1"); n != 1 {
			t.Fatalf("%d jobs began; want 1", n)
		}
		r.noNode(job)
		r.due(10)
		if _, due := r.scores(r.l.Due())[job]; due {
			t.Error("a job without a deadline is due while it runs")
		}
	})
}

// TestNodeWaitLater: the wait of a job for later counts from its time.
func TestNodeWaitLater(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		s := r.later()
		s.NodeWait = time.Minute
		r.enqueued(s)
		if got, want := r.status(s.JobID), s.Job.RunAtMS+60_000; got.NodeByMS != want || got.RunAtMS != s.Job.RunAtMS {
			t.Errorf("%+v; want got.NodeByMS == %d, got.RunAtMS == %d", got, want, s.Job.RunAtMS)
		}
		r.do("ZADD", r.l.Due(), strconv.FormatInt(r.nowMS()-1, 10), s.JobID)
		if d := r.due(10); len(d.Classes) != 1 || len(d.Unplaced) != 0 {
			t.Errorf("%+v; want 1 class, no Unplaced", d)
		}
		if at := r.scores(r.l.Due())[s.JobID]; at != float64(s.Job.RunAtMS+60_000) {
			t.Errorf("due at %.0f, expected when a node must be there", at)
		}
		r.sound()
	})
}

// TestNodeWaitHeldBack: a limit that holds the job back does not change its wait for a node.
func TestNodeWaitHeldBack(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		limit := limitedBy(KeyLimit("acme", "key", 1))
		r.register(testNode("n1", 1))
		r.waits("", limit)
		r.take("n1")
		job := r.waits("", limit, forNode)
		r.noNode(job)
		if d := r.due(10); len(d.Unplaced) != 1 {
			t.Fatalf("%+v; want 1 Unplaced", d)
		}
		if d := r.judged(job, false); d.Expired != 1 {
			t.Errorf("%+v; want d.Expired == 1", d)
		}
		r.sound()
	})
}

// TestNodeWaitMoves: the time goes along when the job moves to another cell.
func TestNodeWaitMoves(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		job := m.waitsIn(0, "", forNode)
		by := m.job(job).NodeByMS
		m.arrives(0, 1, 1)
		m.sound()
		if got := m.job(job); got.NodeByMS != by || by == 0 {
			t.Errorf("%+v; want got.NodeByMS == %d", got, by)
		}
		there := MovedID(job, 1)
		if at := m.rigs[1].scores(m.rigs[1].l.Due())[there]; at != float64(by) {
			t.Errorf("due at %.0f, expected %d", at, by)
		}
		m.rigs[1].noNode(there)
		if d := m.rigs[1].due(10); len(d.Unplaced) != 1 || d.Unplaced[0].JobID != there {
			t.Errorf("%+v; want %s unplaced", d, there)
		}
	})
}
