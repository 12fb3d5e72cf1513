package cell

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

func TestCancel(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		job := r.place("", 2, "n1")
		hear := r.listen()
		r.unchanged("cancel of somebody else's job, of no job", func() {
			_, err := r.Cancel(r.ctx(), "other", job)
			wantErr(t, err, freeslot.CodeNotFound)
			_, err = r.Cancel(r.ctx(), "acme", NewJobID(0))
			wantErr(t, err, freeslot.CodeNotFound)
		}, nil)
		s, err := r.Cancel(r.ctx(), "acme", job)
		if err != nil || s.State != freeslot.StateCancelling || s.ID != job || s.Node != "n1" || s.FinishedAtMS != 0 {
			t.Fatalf(`%+v, %v; want no error, s.State == freeslot.StateCancelling, s.ID == %v, s.Node == "n1", s.FinishedAtMS == 0`, s, err, job)
		}
		if held, sum := r.slots("n1"); sum != 2 || held[job] != (owned{attempt: 1, slots: 2, epoch: epoch, cancelled: true}) {
			t.Errorf("slots %v, sum %d", held, sum)
		}
		entries := r.stream(r.l.Dispatch("n1"))
		if len(entries) != 2 || asText(entries[1].FieldValues) != "c="+job+" 1" {
			t.Errorf("dispatch stream %v", entries)
		}
		if ds, err := r.Dispatches(r.ctx(), "n1", entries[0].ID, 0, 10); err != nil || len(ds) != 1 || !ds[0].Cancel || ds[0].Attempt != (Attempt{job, 1}) {
			t.Errorf("dispatches %+v, %v", ds, err)
		}
		r.unchanged("a second cancel, also by an operator", func() {
			for _, tenant := range []string{"acme", ""} {
				if s, err := r.Cancel(r.ctx(), tenant, job); err != nil || s.State != freeslot.StateCancelling {
					t.Errorf("%+v, %v, expected state %s", s, err, freeslot.StateCancelling)
				}
			}
		}, nil)
		r.sound()
		r.end("n1", epoch, job)
		r.unchanged("cancel of a finished job", func() {
			if s, err := r.Cancel(r.ctx(), "acme", job); err != nil || s.State != freeslot.StateSucceeded || string(s.Result) != `{"ok":true}` {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded, string(s.Result) == `{\"ok\":true}`", s, err)
			}
		}, nil)
		if heard := hear.drain(); len(heard) != 1 { // slot_free
			t.Errorf("events %+v", heard)
		}
		r.sound()
	})
}

// TestCancelIf: a job that is in another attempt or state than its caller saw stays as it is.
func TestCancelIf(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		runs, ends := r.place("", 1, "n1"), r.place("", 1, "n1")
		waits := r.waits("")
		r.end("n1", epoch, ends)
		r.take("n1") // the job that waited runs now
		held := r.waits("")
		refused := func(job string, seen Seen, field, message string) {
			t.Helper()
			r.unchanged(fmt.Sprintf("cancel of a job seen as %+v", seen), func() {
				_, err := NewSet(r.Cell).CancelIf(r.ctx(), "acme", job, seen)
				var e *freeslot.Error
				if !errors.As(err, &e) || e.Code != freeslot.CodeConflict || e.Field != field || e.Message != "job "+job+message {
					t.Errorf("seen as %+v: %v; want a conflict at %s: job %s%s", seen, err, field, job, message)
				}
			}, nil)
		}
		refused(waits, Seen{State: freeslot.StateWaiting}, "state", " is running in attempt 1 by now, expected waiting")
		refused(waits, Seen{Attempt: 2, State: freeslot.StateRunning}, "attempt", " is running in attempt 1 by now, expected attempt 2")
		refused(ends, Seen{Attempt: 1, State: freeslot.StateRunning}, "state", " is succeeded in attempt 1 by now, expected running")
		refused(held, Seen{Attempt: 1}, "attempt", " is waiting in attempt 0 by now, expected attempt 1")
		for range 2 { // the answer to the first call may be lost
			s, err := NewSet(r.Cell).CancelIf(r.ctx(), "acme", runs, Seen{Attempt: 1, State: freeslot.StateRunning})
			if err != nil || s.State != freeslot.StateCancelling {
				t.Errorf("cancel of the running job: %s, %v; want cancelling", s.State, err)
			}
			s, err = NewSet(r.Cell).CancelIf(r.ctx(), "acme", held, Seen{State: freeslot.StateMoving})
			if err != nil || s.State != freeslot.StateCancelled {
				t.Errorf("cancel of the waiting job: %s, %v; want cancelled", s.State, err)
			}
		}
		r.sound()
	})
}

// TestCancelWithoutStream: where the dispatch stream is gone, or nothing has made one, the cancel makes it for a node
// that owns the job, whose end deletes it; the mark in the slot is there, too.
func TestCancelWithoutStream(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		r.do("DEL", r.l.Dispatch("n1"))
		if s, err := r.Cancel(r.ctx(), "", job); err != nil || s.State != freeslot.StateCancelling {
			t.Fatalf("%+v, %v, expected state %s", s, err, freeslot.StateCancelling)
		}
		ds, err := r.Dispatches(r.ctx(), "n1", "", 0, 10)
		if err != nil || len(ds) != 1 || !ds[0].Cancel || ds[0].Attempt.Job != job {
			t.Errorf("%+v, %v; want no error, len(ds) == 1, ds[0].Cancel, ds[0].Attempt.Job == %v", ds, err, job)
		}
		if hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil || len(hb.Cancel) != 1 {
			t.Errorf("heartbeat %+v, %v", hb, err)
		}
		if _, err := r.Deregister(r.ctx(), "n1", epoch); err != nil || r.exists(r.l.Dispatch("n1")) {
			t.Errorf("a stream is left: %v", err)
		}

		r.register(testNode("n2", 1))
		gone := r.place("", 1, "n2")
		r.do("DEL", r.l.Dispatch("n2"), r.l.Slots("n2")) // by somebody's hand: the node owns nothing any more
		if _, err := r.Cancel(r.ctx(), "", gone); err != nil {
			t.Fatal(err)
		}
		if r.exists(r.l.Dispatch("n2")) {
			t.Error("a cancel of what no node owns has made a stream")
		}
	})
}

func TestAttach(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for _, replica := range []string{"r1", "r2"} {
			if err := r.OpenReplies(r.ctx(), replica); err != nil {
				t.Fatal(err)
			}
		}
		epoch := r.register(testNode("n1", 1))
		job := r.place("r1", 1, "n1")
		r.unchanged("attach to somebody else's job, to no job, and where one is attached", func() {
			_, err := r.Attach(r.ctx(), "other", job, "r2")
			wantErr(t, err, freeslot.CodeNotFound)
			_, err = r.Attach(r.ctx(), "acme", NewJobID(0), "r2")
			wantErr(t, err, freeslot.CodeNotFound)
			if s, err := r.Attach(r.ctx(), "acme", job, "r1"); err != nil || s.State != freeslot.StateRunning {
				t.Errorf("%+v, %v, expected state %s", s, err, freeslot.StateRunning)
			}
		}, r.attachesOf(job))
		if s, err := r.Attach(r.ctx(), "", job, "r2"); err != nil || s.State != freeslot.StateRunning || s.ID != job {
			t.Fatalf("%+v, %v, expected state %s, id %v", s, err, freeslot.StateRunning, job)
		}
		r.unchanged("a second attach", func() {
			if _, err := r.Attach(r.ctx(), "", job, "r2"); err != nil {
				t.Error(err)
			}
		}, r.attachesOf(job))
		replies := func(replica string) []Reply {
			rs, err := r.Replies(r.ctx(), replica, "", 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			return rs[1:]
		}
		if rs := replies("r1"); len(rs) != 1 || !rs[0].Detached || rs[0].Status.ID != job {
			t.Errorf("the former replica was told %+v", rs)
		}
		// A replica that is gone is not told; a cancelling job can be attached to as well.
		if _, err := r.Attach(r.ctx(), "", job, "gone"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Cancel(r.ctx(), "", job); err != nil {
			t.Fatal(err)
		}
		if s, err := r.Attach(r.ctx(), "", job, "r1"); err != nil || s.State != freeslot.StateCancelling {
			t.Fatalf("%+v, %v, expected state %s", s, err, freeslot.StateCancelling)
		}
		if r.exists(r.l.Replies("gone")) {
			t.Error("a stream was made for a replica that is gone")
		}
		r.end("n1", epoch, job)
		if rs := replies("r1"); len(rs) != 2 || rs[1].Status.State != freeslot.StateSucceeded {
			t.Errorf("the last to attach got %+v", rs)
		}
		if rs := replies("r2"); len(rs) != 1 || !rs[0].Detached {
			t.Errorf("the one before got %+v", rs)
		}
		r.unchanged("attach to a finished job", func() {
			if s, err := r.Attach(r.ctx(), "acme", job, "r2"); err != nil || s.State != freeslot.StateSucceeded || string(s.Result) != `{"ok":true}` {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateSucceeded, string(s.Result) == `{\"ok\":true}`", s, err)
			}
		}, nil)
		r.sound()
	})
}

// TestAttachFireAndForget: a job that nobody waited for gets somebody.
func TestAttachFireAndForget(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		if _, err := r.Attach(r.ctx(), "acme", job, "r1"); err != nil {
			t.Fatal(err)
		}
		r.end("n1", epoch, job)
		if rs, err := r.Replies(r.ctx(), "r1", "", 0, 10); err != nil || len(rs) != 2 {
			t.Errorf("%+v, %v, expected 2 entries", rs, err)
		}
	})
}

func TestReads(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		r.unchanged("reading", func() {
			for tenant, code := range map[string]freeslot.Code{"acme": "", "": "", "other": freeslot.CodeNotFound} {
				s, err := r.Job(r.ctx(), tenant, job)
				wantErr(t, err, code)
				if (err == nil) != (s.ID == job) {
					t.Errorf("tenant %q: %+v, %v", tenant, s, err)
				}
			}
			_, err := r.Job(r.ctx(), "", NewJobID(0))
			wantErr(t, err, freeslot.CodeNotFound)
			_, _, err = r.Spec(r.ctx(), NewJobID(0))
			wantErr(t, err, freeslot.CodeNotFound)
			spec, tenant, err := r.Spec(r.ctx(), job)
			want := testJob()
			want.Slots = 1
			if err != nil || tenant != "acme" || !cmp.Equal(spec, want) {
				t.Errorf(`%+v, %q, %v; want no error, tenant == "acme", cmp.Equal(spec, want)`, spec, tenant, err)
			}
			got, err := r.JobsByID(r.ctx(), []string{NewJobID(0), job, NewJobID(0)})
			if err != nil || len(got) != 1 || got[0].ID != job {
				t.Errorf("%+v, %v; want no error, len(got) == 1, got[0].ID == %v", got, err, job)
			}
			if got, err := r.JobsByID(r.ctx(), nil); err != nil || len(got) != 0 {
				t.Errorf("%+v, %v, expected 0 entries", got, err)
			}
			for node, want := range map[string]Revision{"n1": r.revision(), "n2": 0} {
				if rev, err := r.NodeRevision(r.ctx(), node); err != nil || rev != want {
					t.Errorf("node %s: revision %d, %v", node, rev, err)
				}
			}
		}, nil)
	})
}
