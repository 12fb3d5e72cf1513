package cell

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// TestRetry: a failure that may be repeated has a pause, then the job waits, and its replica
// is told of all of it. The last one that it may have ends it.
func TestRetry(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		epoch := r.register(testNode("n1", 1))
		other := r.register(testNode("n2", 1))
		s := submission("r1", "n1")
		s.Job.MaxAttempts = 2
		if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned {
			t.Fatal(p, err)
		}
		failed := r.fails("n1", epoch, s.JobID, Retry)
		failed.RetryDelay = time.Hour
		before := r.nowMS()
		r.complete1(failed)
		due := r.scores(r.l.Due())[s.JobID] - float64(time.Hour.Milliseconds())
		if due < float64(before) || due > float64(r.nowMS()) {
			t.Errorf("the pause is over %.0f ms after its time", due-float64(before))
		}
		status := r.status(s.JobID)
		if status.State != freeslot.StateRetryWait || status.Failures != 1 || status.Attempt != 1 || !cmp.Equal(status.Error, failed.Error) {
			t.Errorf("%+v; want status.State == freeslot.StateRetryWait, status.Failures == 1, status.Attempt == 1, cmp.Equal(status.Error, failed.Error)", status)
		}
		if got := r.status(s.JobID).RunAtMS; got == 0 || got != int64(r.scores(r.l.Due())[s.JobID]) {
			t.Errorf("goes on at %d", got)
		}
		if status.Node != "n1" { // where it failed
			t.Errorf("node %q", status.Node)
		}
		if page, err := r.Jobs(r.ctx(), JobFilter{State: freeslot.StateRetryWait}, "", 10); err != nil || len(page.Jobs) != 1 || page.Jobs[0].RunAtMS != int64(r.scores(r.l.Due())[s.JobID]) {
			t.Errorf("%+v, %v; want no error, len(page.Jobs) == 1, page.Jobs[0].RunAtMS == int64(r.scores(r.l.Due())[s.JobID])", page, err)
		}
		if _, sum := r.slots("n1"); sum != 0 {
			t.Errorf("%d slots in use", sum)
		}
		r.unchanged("the same failure again", func() {
			if out, err := r.Complete(r.ctx(), failed); err != nil || out != CompletedBefore {
				t.Errorf("%v, %v, expected %v", out, err, CompletedBefore)
			}
			if d := r.due(10); d.Expired != 0 || len(d.Classes) != 0 || d.More {
				t.Errorf("before its time: %+v", d)
			}
		}, func(dump map[string]string) { delete(dump, strings.TrimPrefix(r.l.Due(), r.l.Prefix+":")) })
		r.sound()
		r.pass(s.JobID)
		if d := r.due(10); !cmp.Equal(d, Due{Classes: []Class{ClassOf(s.Job)}}) {
			t.Errorf("after the pause: %+v", d)
		}
		r.sound()
		r.do("HSET", r.l.Job(s.JobID), "fails", "1 9000000000000 n1") // a moment ago
		if n := r.take("n1"); n != 0 {
			t.Errorf("the node where it has just failed took %d", n)
		}
		if n := r.take("n2"); n != 1 {
			t.Errorf("the other node took %d", n)
		}
		if out, err := r.Complete(r.ctx(), failed); err != nil || out != CompletedStale {
			t.Errorf("the first attempt again: %v, %v", out, err)
		}
		if status := r.status(s.JobID); status.State != freeslot.StateRunning || status.Attempt != 2 || status.Node != "n2" || status.Error != nil {
			t.Errorf(`%+v; want status.State == freeslot.StateRunning, status.Attempt == 2, status.Node == "n2", status.Error == nil`, status)
		}
		r.complete1(r.fails("n2", other, s.JobID, Retry))
		if status := r.status(s.JobID); status.State != freeslot.StateDead || status.Failures != 2 || !cmp.Equal(status.Error, failed.Error) {
			t.Errorf("%+v; want status.State == freeslot.StateDead, status.Failures == 2, cmp.Equal(status.Error, failed.Error)", status)
		}
		var states []string
		for _, reply := range r.told("r1") {
			switch {
			case reply.Requeued && reply.Class == echo:
				states = append(states, "requeued")
			case reply.Assigned && reply.Status.Attempt == 2 && reply.Status.Node == "n2" && reply.Used == 1:
				states = append(states, "assigned")
			default:
				states = append(states, string(reply.Status.State)+" "+reply.Status.Error.Code)
			}
		}
		if d := cmp.Diff([]string{"requeued", "assigned", "dead boom"}, states); d != "" {
			t.Errorf("replies (-want +got):\n%s", d)
		}
		r.sound()
	})
}

// TestAvoid: the node where a job has just failed gets it only later; others of its class go on.
func TestAvoid(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		r.complete1(r.fails("n1", epoch, job, Retry))
		if s := r.status(job); s.State != freeslot.StateWaiting || s.Failures != 1 {
			t.Fatalf("without a pause: %+v", s)
		}
		next := r.waits("")
		r.do("HSET", r.l.Job(job), "fails", "1 9000000000000 n1")
		if n := r.take("n1"); n != 1 || r.status(next).State != freeslot.StateRunning {
			t.Errorf("%d began", n)
		}
		r.forgive(job)
		r.end("n1", epoch, next)
		if s := r.status(job); s.State != freeslot.StateRunning || s.Attempt != 2 || s.Node != "n1" {
			t.Errorf(`%+v; want s.State == freeslot.StateRunning, s.Attempt == 2, s.Node == "n1"`, s)
		}
		r.sound()
	})
}

// TestHandBack: a node that stops hands its jobs back; that is no failure, however often.
func TestHandBack(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.waits("", attempts(1))
		for n := 1; n <= 3; n++ {
			r.forgive(job)
			r.take("n1")
			r.complete1(r.fails("n1", epoch, job, HandBack))
			if s := r.status(job); s.State != freeslot.StateWaiting || s.Failures != 0 || s.Attempt != n || s.Node != "" {
				t.Errorf(`%+v; want s.State == freeslot.StateWaiting, s.Failures == 0, s.Attempt == %v, s.Node == ""`, s, n)
			}
			r.sound()
		}
		r.forgive(job)
		r.take("n1")
		r.complete1(r.fails("n1", epoch, job, Retry))
		if s := r.status(job); s.State != freeslot.StateDead || s.Failures != 1 || s.Attempt != 4 {
			t.Errorf("%+v; want s.State == freeslot.StateDead, s.Failures == 1, s.Attempt == 4", s)
		}
		r.sound()
	})
}

// TestAgainEnds: a job that somebody cancels, or that has no time left, is not tried again.
func TestAgainEnds(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 9))
		for _, again := range []Next{Retry, HandBack} {
			cancelled := r.place("", 1, "n1")
			if _, err := r.Cancel(r.ctx(), "", cancelled); err != nil {
				t.Fatal(err)
			}
			r.complete1(r.fails("n1", epoch, cancelled, again))
			if s := r.status(cancelled); s.State != freeslot.StateCancelled || s.Error != nil {
				t.Errorf("%+v; want s.State == freeslot.StateCancelled, s.Error == nil", s)
			}
			late := r.waits("", timeout(60_000))
			r.take("n1")
			failed := r.fails("n1", epoch, late, again)
			if again == HandBack {
				r.pass(late)
			}
			failed.RetryDelay = time.Hour // beyond the deadline
			r.complete1(failed)
			if s := r.status(late); s.State != freeslot.StateExpired || !cmp.Equal(s.Error, failed.Error) {
				t.Errorf("%+v; want s.State == freeslot.StateExpired, cmp.Equal(s.Error, failed.Error)", s)
			}
			r.sound()
		}
		for name, comp := range map[string]Completion{
			"succeeded": succeed("n1", epoch, NewJobID(0)), "cancelled": {Node: "n1", Epoch: epoch, Attempt: Attempt{NewJobID(0), 1}, State: freeslot.StateCancelled},
		} {
			comp.Next = Retry
			if _, err := r.Complete(r.ctx(), comp); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
				t.Errorf("%s and to be tried again: %v", name, err)
			}
		}
	})
}

// TestCancelWaiting: a job that does not run ends at once.
func TestCancelWaiting(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		epoch := r.register(testNode("n1", 1))
		paused := r.waits("r1", timeout(time.Hour.Milliseconds()*2))
		r.take("n1")
		failed := r.fails("n1", epoch, paused, Retry)
		failed.RetryDelay = time.Hour
		r.complete1(failed)
		waiting, kept := r.waits("r1", timeout(time.Hour.Milliseconds())), r.waits("")
		for i, job := range []string{paused, waiting} {
			r.unchanged("cancel of somebody else's job", func() {
				_, err := r.Cancel(r.ctx(), "other", job)
				wantErr(t, err, freeslot.CodeNotFound)
			}, nil)
			s, err := r.Cancel(r.ctx(), "acme", job)
			if err != nil || s.State != freeslot.StateCancelled || s.FinishedAtMS == 0 || s.Attempt != 1-i {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateCancelled, s.FinishedAtMS != 0, s.Attempt == 1-i", s, err)
			}
			r.unchanged("cancel again", func() {
				if s, err := r.Cancel(r.ctx(), "acme", job); err != nil || s.State != freeslot.StateCancelled {
					t.Errorf("%+v, %v, expected state %s", s, err, freeslot.StateCancelled)
				}
			}, nil)
			told := r.told("r1")
			last := told[len(told)-1]
			if last.Status.ID != job || last.Status.State != freeslot.StateCancelled || last.Status.Node != s.Node || s.Node != []string{"n1", ""}[i] {
				t.Errorf("reply %+v", last)
			}
			r.sound()
		}
		if s := r.status(kept); s.Position != 1 {
			t.Errorf("%+v; want s.Position == 1", s)
		}
	})
}

// TestAttachWhileWaiting: the one that attached is told of the attempt and gets the result.
func TestAttachWhileWaiting(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		must(t, r.OpenReplies(r.ctx(), "r2"))
		epoch := r.register(testNode("n1", 1))
		job := r.waits("r1")
		if s, err := r.Attach(r.ctx(), "acme", job, "r2"); err != nil || s.State != freeslot.StateWaiting || s.Attempt != 0 || s.Node != "" {
			t.Errorf("%+v, %v, expected state %s, attempt 0, no node", s, err, freeslot.StateWaiting)
		}
		r.take("n1")
		r.end("n1", epoch, job)
		if told := r.told("r1"); len(told) != 1 || !told[0].Detached {
			t.Errorf("the former replica was told %+v", told)
		}
		if told := r.told("r2"); len(told) != 2 || !told[0].Assigned || told[1].Status.State != freeslot.StateSucceeded {
			t.Errorf("the replica was told %+v", told)
		}
		r.sound()
	})
}

// TestLoadCountsEnds: the load of a cell tells the ends since a reading by state, and retries.
func TestLoadCountsEnds(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		epoch := r.register(testNode("n1", 9))
		submit := func() string {
			t.Helper()
			s := submission("r1", "n1")
			s.Job.MaxAttempts = 2
			if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned {
				t.Fatal(p, err)
			}
			return s.JobID
		}
		load := func(since int64) ServerLoad {
			t.Helper()
			l, err := r.ServerLoad(r.ctx(), since)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		r.complete1(succeed("n1", epoch, submit())) // before the reading
		before := load(0)
		if before.Ends != (Ends{}) || before.Retries != 0 || before.Role != "master" {
			t.Errorf("without a reading before: %+v; want no ends and no retries of a master", before)
		}
		jobs := [...]string{submit(), submit(), submit(), submit(), submit()}
		r.complete1(r.fails("n1", epoch, jobs[0], Never))
		r.complete1(succeed("n1", epoch, jobs[1]))
		r.complete1(succeed("n1", epoch, jobs[2]))
		r.complete1(r.fails("n1", epoch, jobs[3], Retry))
		r.complete1(r.fails("n1", epoch, jobs[4], Retry))
		if got := load(before.AtUS); got.Ends != (Ends{2, 0, 1, 0, 0}) || got.Retries != 2 {
			t.Errorf("ends %v, retries %d; want 2 succeeded, 1 failed, 2 retries", got.Ends, got.Retries)
		}
		r.do("SET", r.l.Ended("failed"), "of another type")
		r.do("DEL", r.l.EndedInfo())
		if got := load(before.AtUS); got.Ends != (Ends{3, 0, 0, 0, 0}) || got.Retries != 0 {
			t.Errorf("with a damaged index %v, retries %d; want 3 ends, and none", got.Ends, got.Retries)
		}
		r.do("DEL", r.l.Ended("failed"))
	})
}
