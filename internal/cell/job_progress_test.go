package cell

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func told(job string, attempt int, seq int64, value string) ProgressReport {
	return ProgressReport{Attempt: Attempt{job, attempt}, Seq: seq, Value: json.RawMessage(value)}
}

// tells sends reports that must come to these outcomes.
func (r *rig) tells(node string, epoch Epoch, want []ProgressOutcome, reports ...ProgressReport) {
	r.t.Helper()
	got, err := r.Progress(r.ctx(), node, epoch, reports)
	if err != nil || !reflect.DeepEqual(got, want) {
		r.t.Errorf("progress %+v: %v, %v; want %v", reports, got, err, want)
	}
}

// news are the progress entries of a replica's stream, as "attempt number value".
func (r *rig) news(replica string) (lines []string) {
	r.t.Helper()
	for _, reply := range r.told(replica) {
		if p := reply.Progress; p != nil {
			lines = append(lines, reply.Status.ID+" "+toldLine(p))
		}
	}
	return lines
}

func TestProgress(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(testNode("n1", 4))
		a, b, silent := r.place("r1", 1, "n1"), r.place("r1", 2, "n1"), r.place("", 1, "n1")
		taken := []ProgressOutcome{ProgressTaken}
		before := r.nowMS()
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken, ProgressTaken, ProgressTaken},
			told(a, 1, 1, `{"done":10}`), told(b, 1, 7, `" "`), told(silent, 1, 1, "null"))
		s := r.status(a)
		if p := s.Progress; p == nil || p.Attempt != 1 || p.Seq != 1 || string(p.Value) != `{"done":10}` || p.AtMS < before || p.AtMS > r.nowMS() {
			t.Errorf("progress %+v", p)
		}
		if p := r.status(silent).Progress; p == nil || string(p.Value) != "null" {
			t.Errorf("progress %+v of a job for which nobody waits", p)
		}
		r.unchanged("the same again, and an older one", func() {
			r.tells("n1", epoch, taken, told(a, 1, 1, `{"done":11}`))
			r.tells("n1", epoch, taken, told(b, 1, 6, `6`))
		}, nil)
		r.tells("n1", epoch, taken, told(b, 1, 10, `10`)) // 10 is more than 7, as a number
		want := []string{a + ` told 1 1 {"done":10}`, b + ` told 1 7 " "`, b + ` told 1 10 10`}
		if d := cmp.Diff(want, r.news("r1")); d != "" {
			t.Errorf("the replica was told (-want +got):\n%s", d)
		}
		if p := r.status(b).Progress; string(p.Value) != "10" {
			t.Errorf("progress %+v", p)
		}
		r.sound()

		if _, err := r.Cancel(r.ctx(), "", b); err != nil {
			t.Fatal(err)
		}
		r.tells("n1", epoch, []ProgressOutcome{ProgressCancel, ProgressTaken}, told(b, 1, 11, "11"), told(a, 1, 2, "2"))
		r.end("n1", epoch, a)
		if s := r.status(a); s.Progress == nil || string(s.Progress.Value) != "2" || s.State != freeslot.StateSucceeded {
			t.Errorf("%+v with progress %+v", s, s.Progress)
		}
		r.sound()
	})
}

// TestProgressStale: what another attempt, epoch or node tells changes nothing, nor what is
// told of a job that has ended, or of none.
func TestProgressStale(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch, other := r.register(testNode("n1", 3)), r.register(testNode("n2", 3))
		job, ended, edited := r.place("r1", 1, "n1"), r.place("r1", 1, "n1"), r.place("r1", 1, "n1")
		r.end("n1", epoch, ended)
		r.do("HSET", r.l.Job(edited), "progress", "x")
		stale := []ProgressOutcome{ProgressStale}
		r.unchanged("stale progress", func() {
			r.tells("n1", epoch, []ProgressOutcome{ProgressStale, ProgressStale, ProgressStale},
				told(job, 2, 1, "1"), told(ended, 1, 1, "1"), told(r.NewJobID(), 1, 1, "1"))
			r.tells("n1", other, stale, told(job, 1, 1, "1"))
			r.tells("n2", other, stale, told(job, 1, 1, "1"))
			r.tells("gone", other, stale, told(job, 1, 1, "1"))
		}, nil)
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken}, told(edited, 1, 1, "1"))
		if p := r.status(edited).Progress; p == nil || p.Seq != 1 {
			t.Errorf("progress %+v after an edit", p)
		}
		// A record that an operator deleted is not made again.
		r.do("DEL", r.l.Job(edited))
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken}, told(edited, 1, 2, "2"))
		if r.exists(r.l.Job(edited)) {
			t.Errorf("the record is %v", r.hash(r.l.Job(edited)))
		}
	})
}

// TestProgressOfNextAttempt: numbers begin anew with each attempt, and rise all the same.
func TestProgressOfNextAttempt(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(testNode("n1", 1))
		job := r.place("r1", 1, "n1")
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken}, told(job, 1, 9, "9"))
		if out, err := r.Complete(r.ctx(), r.fails("n1", epoch, job, Retry)); err != nil || out != Completed {
			t.Fatal(out, err)
		}
		r.forgive(job)
		if n := r.take("n1", echo); n != 1 {
			t.Fatalf("%d jobs began", n)
		}
		if p := r.status(job).Progress; p == nil || p.Attempt != 1 {
			t.Errorf("progress %+v before the second attempt tells any", p)
		}
		r.tells("n1", epoch, []ProgressOutcome{ProgressStale}, told(job, 1, 10, "10"))
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken}, told(job, 2, 1, "1"))
		if p := r.status(job).Progress; p == nil || p.Attempt != 2 || p.Seq != 1 {
			t.Errorf("progress %+v", p)
		}
		if d := cmp.Diff([]string{job + " told 1 9 9", job + " told 2 1 1"}, r.news("r1")); d != "" {
			t.Errorf("the replica was told (-want +got):\n%s", d)
		}
		r.sound()
	})
}

// TestProgressGivesWay: a long stream gets no progress, but the record has it; nor is the
// stream of a replica made that is gone.
func TestProgressGivesWay(t *testing.T) {
	const backlog = 8192 // BACKLOG of progress.lua
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(testNode("n1", 2))
		job, other := r.place("r1", 1, "n1"), r.place("r2", 1, "n1")
		cmds := make(rueidis.Commands, backlog-1)
		for i := range cmds {
			cmds[i] = r.raw.B().Xadd().Key(r.l.Replies("r1")).Id("*").FieldValue().FieldValue("open", strconv.Itoa(i)).Build()
		}
		for _, res := range r.raw.DoMulti(r.ctx(), cmds...) {
			if err := res.Error(); err != nil {
				t.Fatal(err)
			}
		}
		both := []ProgressOutcome{ProgressTaken, ProgressTaken}
		r.tells("n1", epoch, both, told(job, 1, 1, "1"), told(other, 1, 1, "1"))
		if n := r.int("XLEN", r.l.Replies("r1")); n != backlog || r.exists(r.l.Replies("r2")) {
			t.Errorf("%d entries, want %d; a stream for r2: %v", n, backlog, r.exists(r.l.Replies("r2")))
		}
		if p := r.status(job).Progress; p == nil || p.Seq != 1 {
			t.Errorf("progress %+v", p)
		}
		r.do("XTRIM", r.l.Replies("r1"), "MAXLEN", "1")
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken}, told(job, 1, 2, "2"))
		if got := r.news("r1"); len(got) != 1 {
			t.Errorf("%v once there is room", got)
		}
	})
}

// TestProgressRefused: what cannot be sent is not sent.
func TestProgressRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	job := r.NewJobID()
	many := make([]ProgressReport, MaxProgressItems+1)
	for field, c := range map[string]struct {
		node, epoch string
		reports     []ProgressReport
	}{
		"node_id": {"", "e", []ProgressReport{told(job, 1, 1, "1")}},
		"epoch":   {"n1", "", []ProgressReport{told(job, 1, 1, "1")}},
		"job_id":  {"n1", "e", []ProgressReport{told("x", 1, 1, "1")}},
		"reports": {"n1", "e", many},
		"value":   {"n1", "e", []ProgressReport{told(job, 1, 1, `"`+strings.Repeat("x", freeslot.MaxProgressBytes)+`"`)}},
	} {
		if _, err := r.Progress(r.ctx(), c.node, c.epoch, c.reports); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Errorf("%s: %v; want freeslot.CodeOf(err) == freeslot.CodeInvalidArgument", field, err)
		}
	}
	for _, bad := range []ProgressReport{told(job, 0, 1, "1"), told(job, 1, 0, "1"), told(job, 1, 1, "{"), told(job, 1, 1, "\"\xff\""), told(job, 1, 1, "")} {
		if _, err := r.Progress(r.ctx(), "n1", "e", []ProgressReport{bad}); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Errorf("%+v: %v; want freeslot.CodeOf(err) == freeslot.CodeInvalidArgument", bad, err)
		}
	}
	if _, err := r.Progress(r.ctx(), "n1", "e", nil); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Errorf("no reports: %v", err)
	}
}

func FuzzDecodeProgress(f *testing.F) {
	f.Add("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z 1 2 1700000000000", `{"a":1}`)
	f.Add("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z 1 2", ` `)
	f.Add("x 1 2 3", `1`)
	f.Add("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z 1 2 3", "\"\xff\"")
	f.Add("0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z x y z", ``)
	f.Fuzz(func(t *testing.T, head, value string) {
		r, err := decodeReply("1-1", fields{{Field: "p", Value: head}, {Field: "v", Value: value}})
		if err != nil || head == "" {
			return
		}
		p := r.Progress
		if r.ID != "1-1" || p == nil || !json.Valid(p.Value) || ValidateJobID("job_id", r.Status.ID) != nil {
			t.Fatalf("%q %q became %+v", head, value, r)
		}
		again, err := decodeProgress(strconv.Itoa(p.Attempt) + " " + strconv.FormatInt(p.Seq, 10) + " " + strconv.FormatInt(p.AtMS, 10) + " " + string(p.Value))
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
		if _, err := json.Marshal(p); err != nil {
			t.Error(err)
		}
	})
}
