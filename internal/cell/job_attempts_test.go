package cell

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestAttemptsAreBounded: the record keeps the last attempts, whatever an operator made of them,
// and codes of other characters than names have are left out.
func TestAttemptsAreBounded(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.waits("", attempts(1))
		// edit is what an operator writes into the record before the attempt ends.
		again := func(next Next, code string, edit ...string) {
			t.Helper()
			r.forgive(job)
			r.take("n1")
			end := r.fails("n1", epoch, job, next)
			end.Error = &freeslot.JobError{Code: code, Message: "it broke"}
			for _, text := range edit {
				r.do("HSET", r.l.Job(job), "attempts", text)
			}
			r.complete1(end)
		}
		for range freeslot.MaxPastAttempts + 5 {
			again(HandBack, "interrupted")
		}
		again(Retry, `odd "code"`)
		got := r.status(job).Attempts
		last := got[len(got)-1]
		if len(got) != freeslot.MaxPastAttempts || got[0].Attempt != 7 || last.Attempt != 26 || last.Code != "" || last.Ended != freeslot.AttemptFailed {
			t.Errorf("%+v; want attempts 7 to 26, the last one failed without a code", got)
		}
		r.sound()

		job = r.waits("", attempts(2))
		again(HandBack, "a")
		again(Retry, strings.Repeat("y", 100), strings.Repeat("x,", 1<<20))
		got = r.status(job).Attempts
		if len(got) != 1 || got[0].Attempt != 2 || got[0].Code != strings.Repeat("y", 64) {
			t.Errorf("%+v; want the second attempt alone, its code cut after 64 bytes", got)
		}
		r.sound()
	})
}

// TestExpiredAttempt: a job whose node never confirmed that it stopped, and one that expired while
// it waited.
func TestExpiredAttempt(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 1))
		running := r.waits("", timeout(time.Hour.Milliseconds()))
		r.take("n1")
		waiting := r.waits("", timeout(time.Hour.Milliseconds()))
		for _, job := range []string{running, waiting, running} {
			r.pass(job)
			r.due(10)
		}
		if s := r.status(running); s.State != freeslot.StateExpired || len(s.Attempts) != 1 || s.Attempts[0].Ended != freeslot.AttemptExpired {
			t.Errorf("%+v; want it expired, with one attempt that did", s)
		}
		if s := r.status(waiting); s.State != freeslot.StateExpired || s.Attempts != nil {
			t.Errorf("%+v; want it expired without an attempt", s)
		}
		r.sound()
	})
}

// TestSuccessCostsNoMore: an attempt that ends its job well costs what complete.lua says. One that
// does not costs a look at when it began, and a place in the index of such ends.
func TestSuccessCostsNoMore(t *testing.T) {
	t.Parallel()
	server := redistest.New(t) // its counts are of this test alone
	r := newRig(t, server.Target)
	must(t, r.OpenReplies(r.ctx(), "r1"))
	epoch := r.register(testNode("n1", 9))
	// One call in 16 looks for old places in the index, besides.
	leastOf := func(prepare func() (counted func())) int {
		t.Helper()
		least := math.MaxInt
		for range 10 {
			counted := prepare()
			before := r.work().commands
			counted()
			least = min(least, r.work().commands-before)
		}
		return least
	}
	cost := func(ending func() Completion) int {
		t.Helper()
		return leastOf(func() func() {
			end := ending()
			return func() { r.complete1(end) }
		})
	}
	good := func() Completion { return succeed("n1", epoch, r.place("r1", 1, "n1")) }
	bad := func() Completion { return r.fails("n1", epoch, r.place("r1", 1, "n1"), Never) }
	counting := leastOf(func() func() { return func() {} })
	got := map[string]int{"succeeds": cost(good) - counting, "fails": cost(bad) - counting}
	if d := cmp.Diff(map[string]int{"succeeds": 12, "fails": 14}, got); d != "" {
		t.Errorf("commands (-want +got):\n%s", d)
	}
}

// TestRequeued: the two jobs name each other, and no record is made for a job that is gone or that
// goes on.
func TestRequeued(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		old := r.waits("", func(s *Submission) { s.Origin.Schedule = "nightly" })
		fresh := r.waits("", func(s *Submission) { s.Origin = Origin{Schedule: "nightly", RequeuedFrom: old} })
		r.take("n1")
		must(t, r.Cell.Requeued(r.ctx(), old, fresh))
		if s := r.status(old); s.RequeuedAs != "" || s.Schedule != "nightly" || s.RequeuedFrom != "" {
			t.Errorf("%+v; want a job of nightly, that runs and is requeued as none", s)
		}
		r.complete1(r.fails("n1", epoch, old, Never))
		must(t, r.Cell.Requeued(r.ctx(), old, fresh))
		if s := r.status(old); s.RequeuedAs != fresh {
			t.Errorf("%+v; want it requeued as %s", s, fresh)
		}
		if s := r.status(fresh); s.RequeuedFrom != old || s.Schedule != "nightly" {
			t.Errorf("%+v; want it requeued from %s, of nightly", s, old)
		}
		r.do("DEL", r.l.Job(old))
		must(t, r.Cell.Requeued(r.ctx(), old, fresh))
		if r.exists(r.l.Job(old)) {
			t.Error("a record was made for a job that is gone")
		}
	})
}
