package cell

import (
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/freeslot/freeslot"
)

const dayMS = 24 * 3_600_000

// TestKeyLivesAsLongAsItsJob: a key outlives a job that begins, waits, runs or is tried again long
// after its submission. Once the job has ended the key is kept for what is left of its time.
func TestKeyLivesAsLongAsItsJob(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		submit := func(key string, change func(*Submission)) (job string, left func() int64) {
			t.Helper()
			s := submission("")
			s.Candidates, s.Job.IdempotencyKey = nil, key
			change(&s)
			if p := r.enqueued(s)[0]; !p.Waiting {
				t.Fatalf("%s: placed as %+v, expected it to wait", key, p)
			}
			return s.JobID, func() int64 { return r.int("PTTL", r.l.Idempotency(s.Tenant, key)) }
		}
		within := func(what string, left, low, high int64) {
			t.Helper()
			if left < low || left > high {
				t.Errorf("%s: the key is kept for %d ms, expected %d to %d", what, left, low, high)
			}
		}
		keep := DefaultKeyRetention.Milliseconds()
		const hour = 3_600_000 // more than a test takes

		later, left := submit("later", func(s *Submission) { s.Job.RunAtMS, s.Job.TimeoutMS = r.nowMS()+30*dayMS, dayMS })
		within("a job that begins in 30 days, and has a day", left(), 31*dayMS+keep-hour, 31*dayMS+keep+hour)
		if _, err := r.Cancel(r.ctx(), "", later); err != nil {
			t.Fatal(err)
		}
		within("that job, cancelled", left(), keep-hour, keep)

		bounded, left := submit("bounded", func(s *Submission) { s.Job.TimeoutMS = 20 * dayMS })
		within("a job with 20 days", left(), 20*dayMS+keep-hour, 20*dayMS+keep+hour)
		endless, endlessLeft := submit("endless", func(*Submission) {})
		within("a job without a deadline", endlessLeft(), 366*dayMS, 367*dayMS+keep)
		dead, deadLeft := submit("dead", func(s *Submission) { s.Job.MaxAttempts = 1 })
		if n := r.take("n1"); n != 3 {
			t.Fatalf("%d jobs began, expected 3", n)
		}
		within("that job, while it runs", endlessLeft(), 366*dayMS, 367*dayMS+keep)
		r.end("n1", epoch, bounded)
		within("the bounded job, ended", left(), keep-hour, keep)
		r.end("n1", epoch, endless)
		within("the endless job, ended", endlessLeft(), keep-hour, keep)
		r.complete1(r.fails("n1", epoch, dead, Retry))
		if s := r.status(dead); s.State != freeslot.StateDead {
			t.Fatalf("the job of one attempt is %s, expected dead", s.State)
		}
		within("the dead job", deadLeft(), keep-hour, keep)

		lost, left := submit("lost", func(s *Submission) { s.Job.MaxAttempts = 1 })
		if n := r.take("n1"); n != 1 {
			t.Fatalf("%d jobs began, expected 1", n)
		}
		r.silence("n1")
		if _, err := r.Reap(r.ctx(), "n1", epoch); err != nil {
			t.Fatal(err)
		}
		within("the job "+lost+" whose node was lost", left(), keep-hour, keep)
		r.sound()
	})
}

// TestDropFreesKey: a job that is deleted frees its key, and no other job's.
func TestDropFreesKey(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		keyed := func(s *Submission) { s.Job.IdempotencyKey, s.Job.MaxAttempts = "k", 1 }
		first := r.waits("", keyed)
		r.take("n1")
		r.complete1(r.fails("n1", epoch, first, Retry))
		record := r.l.Job(first)
		r.do("COPY", record, r.l.Job("copy"))
		if _, err := r.Drop(r.ctx(), "", first); err != nil {
			t.Fatal(err)
		}
		second := r.waits("", keyed) // is placed, and not answered with the first one
		r.do("RENAME", r.l.Job("copy"), record)
		if _, err := r.Drop(r.ctx(), "", first); err != nil {
			t.Fatal(err)
		}
		third := submission("")
		keyed(&third)
		if p := r.enqueued(third)[0]; p.Owner != second {
			t.Errorf("after the first job was deleted once more the key names %q, expected the second job %s", p.Owner, second)
		}
	})
}

// TestKeyOfAnOlderRelease: a key that nobody shortened when its job ended names the job no longer than
// its time, once the record is gone too. Otherwise it would block submits for a year.
func TestKeyOfAnOlderRelease(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		made := func(cell string, ago time.Duration) string {
			at := ulid.Timestamp(time.UnixMilli(r.nowMS()).Add(-ago))
			return cell + "-" + ulid.MustNew(at, ulid.DefaultEntropy()).String()
		}
		const own = "0" // as submission has it
		for what, c := range map[string]struct {
			owner  string
			record bool
			free   bool
		}{
			"over and gone":             {made(own, DefaultKeyRetention+time.Hour), false, true},
			"over, with its record":     {made(own, DefaultKeyRetention+time.Hour), true, false},
			"gone, within its time":     {made(own, DefaultKeyRetention-time.Hour), false, false},
			"of another cell, and over": {made("63", DefaultKeyRetention+time.Hour), false, false},
			"no id of a job":            {"somebody", false, false},
		} {
			s := submission("")
			s.Candidates, s.Job.IdempotencyKey = nil, what
			r.do("SET", r.l.Idempotency(s.Tenant, what), fmt.Sprintf("%s %x", c.owner, 7), "PX", "31622400000")
			if c.record {
				r.do("HSET", r.l.Job(c.owner), "state", "succeeded")
			}
			if p := r.enqueued(s)[0]; c.free != p.Waiting || !c.free && p.Owner != c.owner {
				t.Errorf("%s: placed as %+v, expected the key to be free: %t", what, p, c.free)
			}
		}
	})
}
