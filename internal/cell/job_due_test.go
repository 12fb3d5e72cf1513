package cell

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// TestDeadline: a job that waits expires at its deadline; one that runs is asked to stop, and
// its slot is taken back when the node does not confirm.
func TestDeadline(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		must(t, r.OpenReplies(r.ctx(), "r1"))
		epoch := r.register(testNode("n1", 3))
		confirms, succeeds, hangs := r.waits("r1", timeout(60_000)), r.waits("r1", timeout(60_000)), r.waits("r1", timeout(60_000))
		if n := r.take("n1"); n != 3 {
			t.Fatalf("%d began", n)
		}
		waiting, kept := r.waits("r1", timeout(60_000)), r.waits("")
		r.unchanged("before the deadline", func() {
			if d := r.due(10); d.Expired != 0 || d.More {
				t.Errorf("%+v", d)
			}
		}, nil)
		for _, job := range []string{confirms, succeeds, hangs, waiting} {
			r.pass(job)
		}
		if d := r.due(3); d.Expired != 3 || !d.More {
			t.Errorf("three of four: %+v", d)
		}
		if d := r.due(3); d.Expired != 1 || d.More {
			t.Errorf("the last: %+v", d)
		}
		r.sound()
		if s := r.status(waiting); s.State != freeslot.StateExpired || s.Error != nil || s.Attempt != 0 {
			t.Errorf("%+v; want s.State == freeslot.StateExpired, s.Error == nil, s.Attempt == 0", s)
		}
		if s := r.status(kept); s.State != freeslot.StateWaiting || s.Position != 1 {
			t.Errorf("%+v; want s.State == freeslot.StateWaiting, s.Position == 1", s)
		}
		hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch})
		if err != nil || len(hb.Cancel) != 3 {
			t.Errorf("heartbeat: %+v, %v", hb, err)
		}
		asked := 0
		for _, d := range mustGet(r.Dispatches(r.ctx(), "n1", "", 0, 10))(t) {
			if d.Cancel && d.Attempt.N == 1 {
				asked++
			}
		}
		if asked != 3 {
			t.Errorf("the node was asked to stop %d", asked)
		}
		grace := r.scores(r.l.Due())[hangs] - float64(r.nowMS())
		if grace <= 0 || grace > float64(30_000) {
			t.Errorf("the grace ends in %.0f ms", grace)
		}
		r.unchanged("within the grace", func() { r.due(10) }, nil)
		comp := succeed("n1", epoch, confirms)
		comp.State, comp.Result = freeslot.StateCancelled, nil
		r.complete1(comp)
		r.end("n1", epoch, succeeds)
		for job, want := range map[string]freeslot.State{confirms: freeslot.StateExpired, succeeds: freeslot.StateSucceeded, hangs: freeslot.StateCancelling} {
			if s := r.status(job); s.State != want {
				t.Errorf("%s: %+v; want s.State == %v", want, s, want)
			}
		}
		r.pass(hangs)
		r.due(10)
		if s := r.status(hangs); s.State != freeslot.StateExpired {
			t.Errorf("%+v; want s.State == freeslot.StateExpired", s)
		}
		if out, err := r.Complete(r.ctx(), succeed("n1", epoch, hangs)); err != nil || out != CompletedBefore {
			t.Errorf("after the end: %v, %v", out, err)
		}
		expired := 0
		for _, reply := range r.told("r1") {
			if reply.Status.State == freeslot.StateExpired {
				expired++
			}
		}
		if expired != 3 {
			t.Errorf("told of %d that expired", expired)
		}
		if n := r.int("EXISTS", r.l.Due()); n != 0 {
			t.Error("something is due")
		}
		r.sound()
	})
}

func mustGet[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T { t.Helper(); must(t, err); return v }
}

// TestDueLater: what ended or moved on since is left alone, and a pause does not forget the deadline.
func TestDueLater(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 9))
		job := r.waits("", timeout(2*time.Hour.Milliseconds()))
		r.take("n1")
		failed := r.fails("n1", epoch, job, Retry)
		failed.RetryDelay = time.Hour
		r.complete1(failed)
		r.pass(job)
		if d := r.due(10); !cmp.Equal(d, Due{Classes: []Class{ClassOf(testJob())}}) {
			t.Errorf("%+v; want cmp.Equal(d, Due{Classes: []Class{ClassOf(testJob())}})", d)
		}
		r.sound() // due at the deadline again
		// What an operator wrote there is taken out.
		r.do("ZADD", r.l.Due(), "1", "0-x", "1", NewJobID(0))
		r.due(10)
		r.sound()
	})
}

// TestDeadlineOfCancelled: a job that is being cancelled gets the grace once.
func TestDeadlineOfCancelled(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 1))
		job := r.waits("", timeout(60_000))
		r.take("n1")
		if _, err := r.Cancel(r.ctx(), "", job); err != nil {
			t.Fatal(err)
		}
		for i, want := range []freeslot.State{freeslot.StateCancelling, freeslot.StateExpired} {
			r.pass(job)
			r.due(10)
			if s := r.status(job); s.State != want {
				t.Errorf("%d: %+v; want s.State == %v", i, s, want)
			}
			r.sound()
		}
		if _, sum := r.slots("n1"); sum != 0 {
			t.Errorf("%d slots in use", sum)
		}
	})
}

// A failover can lose that a job's time was over, when its node has been told so already: the node says that the job was
// cancelled, which nobody asked for, and its deadline says why.
func TestDeadlineWhoseWordIsLost(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		late, early := r.waits("", timeout(60_000)), r.waits("", timeout(60_000))
		if n := r.take("n1"); n != 2 {
			t.Fatalf("%d began", n)
		}
		r.pass(late)
		for job, want := range map[string]freeslot.State{late: freeslot.StateExpired, early: freeslot.StateCancelled} {
			done := Completion{Node: "n1", Epoch: epoch, Attempt: Attempt{Job: job, N: 1}, State: freeslot.StateCancelled}
			if out, err := r.Complete(r.ctx(), done); err != nil || out != Completed {
				t.Fatal(out, err)
			}
			if s := r.status(job); s.State != want || s.Error != nil {
				t.Errorf("%+v, expected %s", s, want)
			}
		}
	})
}
