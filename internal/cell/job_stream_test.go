package cell

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestDispatches(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if ds, err := r.Dispatches(r.ctx(), "n1", "", 0, 10); err != nil || len(ds) != 0 {
			t.Errorf("no stream: %+v, %v", ds, err)
		}
		r.register(testNode("n1", 5))
		var jobs []string
		for range 5 {
			jobs = append(jobs, r.place("", 1, "n1"))
		}
		var got []string
		after := ""
		for _, n := range []int{2, 2, 1, 0} {
			ds, err := r.Dispatches(r.ctx(), "n1", after, 0, 2)
			if err != nil || len(ds) != n {
				t.Fatalf("%d entries, %v; want %d", len(ds), err, n)
			}
			for _, d := range ds {
				got, after = append(got, d.Attempt.Job), d.ID
			}
		}
		for i := range jobs {
			if got[i] != jobs[i] {
				t.Errorf("entry %d is of job %s, want %s", i, got[i], jobs[i])
			}
		}
	})
}

// TestBlockingRead: it ends with an entry, with its time, or with its context.
func TestBlockingRead(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 1))
		type answer struct {
			ds  []Dispatch
			err error
		}
		read := func(ctx context.Context, block time.Duration) <-chan answer {
			c := make(chan answer, 1)
			go func() {
				ds, err := r.Dispatches(ctx, "n1", "", block, 10)
				c <- answer{ds, err}
			}()
			return c
		}
		wait := func(c <-chan answer) answer {
			t.Helper()
			return waittest.Receive(t, "the end of the read", c)
		}
		for _, block := range []time.Duration{-time.Second, 0, time.Microsecond, time.Millisecond} {
			if a := wait(read(r.ctx(), block)); a.err != nil || len(a.ds) != 0 {
				t.Errorf("block %s: %+v", block, a)
			}
		}
		ctx, cancel := context.WithCancel(r.ctx())
		gone := read(ctx, time.Hour)
		cancel()
		if a := wait(gone); !errors.Is(a.err, context.Canceled) {
			t.Errorf("cancelled: %+v", a)
		}
		arrives := read(r.ctx(), time.Hour)
		job := r.place("", 1, "n1")
		if a := wait(arrives); a.err != nil || len(a.ds) != 1 || a.ds[0].Attempt.Job != job {
			t.Errorf("an entry came: %+v", a)
		}
	})
}

// TestDispatchesSkipUnreadable: an entry of another release, or an operator's, does
// not hold up those behind it.
func TestDispatchesSkipUnreadable(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 3))
		id := NewJobID(0)
		bad := [][]string{{"j", "x 1 acme"}, {"a", "1"}, {"j", id}, {"j", id + " one acme"}, {"j", id + " 1 acme", "s", "{"}, {"c", id}, {"c", "x 1"}, {"k", "drain"}}
		spoil := func() {
			for _, fields := range bad {
				r.do(append([]string{"XADD", r.l.Dispatch("n1"), "*"}, fields...)...)
			}
		}
		spoil()
		one := r.place("", 1, "n1")
		spoil()
		two := r.place("", 1, "n1")
		spoil()
		after, got := "", []string(nil)
		for range 2 {
			ds, err := r.Dispatches(r.ctx(), "n1", after, 0, 3)
			if err != nil || len(ds) == 0 {
				t.Fatalf("%+v, %v; want no error, len(ds) != 0", ds, err)
			}
			for _, d := range ds {
				got, after = append(got, d.Attempt.Job), d.ID
			}
		}
		if len(got) != 2 || got[0] != one || got[1] != two {
			t.Errorf("got %v, want %s and %s", got, one, two)
		}
		if ds, err := r.Dispatches(r.ctx(), "n1", after, 0, 3); err != nil || len(ds) != 0 {
			t.Errorf("behind the last: %+v, %v", ds, err)
		}
	})
}

func TestReplyStream(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.KeepReplies(r.ctx(), "r1", ""); !errors.Is(err, ErrRepliesGone) {
			t.Errorf("keep without open: %v", err)
		}
		if err := r.KeepReplies(r.ctx(), "r1", "0-1"); !errors.Is(err, ErrRepliesGone) || r.exists(r.l.Replies("r1")) {
			t.Errorf("keep without open: %v", err)
		}
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		lives := func() {
			t.Helper()
			if ttl := r.int("PTTL", r.l.Replies("r1")); ttl <= 0 || ttl > streamTTL.Milliseconds() {
				t.Errorf("TTL %d ms", ttl)
			}
		}
		lives()
		epoch := r.register(testNode("n1", 1))
		for range 3 {
			r.end("n1", epoch, r.place("r1", 1, "n1"))
		}
		rs, err := r.Replies(r.ctx(), "r1", "", 0, 10)
		if err != nil || len(rs) != 4 || rs[0].Status.ID != "" || rs[1].Status.ID == "" {
			t.Fatalf(`%+v, %v; want no error, len(rs) == 4, rs[0].Status.ID == "", rs[1].Status.ID != ""`, rs, err)
		}
		r.do("PERSIST", r.l.Replies("r1"))
		if err := r.KeepReplies(r.ctx(), "r1", rs[2].ID); err != nil {
			t.Fatal(err)
		}
		lives()
		if left := r.stream(r.l.Replies("r1")); len(left) != 2 || left[0].ID != rs[2].ID {
			t.Errorf("trimmed to %v", left)
		}
		if rs, err := r.Replies(r.ctx(), "r1", rs[2].ID, 0, 10); err != nil || len(rs) != 1 {
			t.Errorf("%+v, %v, expected 1 entry", rs, err)
		}
		// Opening again keeps what is there.
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil || len(r.stream(r.l.Replies("r1"))) != 3 {
			t.Errorf(`%v, %v; want no error, len(r.stream(r.l.Replies("r1"))) == 3`, err, r.stream(r.l.Replies("r1")))
		}
		for range 2 {
			if err := r.CloseReplies(r.ctx(), "r1"); err != nil || r.exists(r.l.Replies("r1")) {
				t.Errorf("close: %v", err)
			}
		}
	})
}

// TestRepliesPassUnreadable: an entry that cannot be read moves the position on and
// says nothing else.
func TestRepliesPassUnreadable(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		r.do("XADD", r.l.Replies("r1"), "*", "j", NewJobID(0)+" one n1 succeeded 1 1 0")
		r.do("XADD", r.l.Replies("r1"), "*", "j", NewJobID(0)+" 1 n1 failed 1 1 0", "e", "{")
		epoch := r.register(testNode("n1", 1))
		job := r.place("r1", 1, "n1")
		r.end("n1", epoch, job)
		rs, err := r.Replies(r.ctx(), "r1", "", 0, 10)
		if err != nil || len(rs) != 4 {
			t.Fatalf("%+v, %v, expected 4 entries", rs, err)
		}
		for i, reply := range rs {
			if i < 3 && reply.Status.ID != "" || reply.ID == "" {
				t.Errorf("entry %d: %+v", i, reply)
			}
		}
		if rs[3].Status.ID != job || rs[3].Status.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want rs[3].Status.ID == %v, rs[3].Status.State == freeslot.StateSucceeded", rs[3], job)
		}
	})
}

// TestDispatchEntryIsBounded: a node keeps its last entry for as long as it gets no other.
func TestDispatchEntryIsBounded(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 99))
		subs := make([]Submission, 20)
		for i := range subs {
			subs[i] = submission("", "n1")
			subs[i].Job.Payload = json.RawMessage(`"` + strings.Repeat("x", 8000) + `"`)
		}
		for i, s := range r.SubmitAll(r.ctx(), subs) {
			if s.Err != nil || !s.Placement.Assigned {
				t.Fatalf("job %d: %+v", i, s)
			}
		}
		// 65,536 bytes are reached by nine jobs.
		if got := len(r.stream(r.l.Dispatch("n1"))); got != 3 {
			t.Errorf("%d entries, want 3", got)
		}
		found, err := r.Dispatches(r.ctx(), "n1", "", 0, 10)
		if err != nil || len(found) != len(subs) {
			t.Fatalf("%d jobs, %v", len(found), err)
		}
		for i, d := range found {
			if d.Attempt.Job != subs[i].JobID || !cmp.Equal(d.Job, subs[i].Job) {
				t.Errorf("job %d is %+v", i, d)
			}
		}
	})
}

// TestSeveralJobsAnEntry: what one call does for several jobs stands in one entry.
func TestSeveralJobsAnEntry(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 9))
		must(t, r.OpenReplies(r.ctx(), "r1"))
		var subs []Submission
		for range 4 {
			subs = append(subs, submission("r1", "n1"))
		}
		for i, s := range r.SubmitAll(r.ctx(), subs) {
			if s.Err != nil || !s.Placement.Assigned {
				t.Fatalf("job %d: %+v", i, s)
			}
		}
		if got := len(r.stream(r.l.Dispatch("n1"))); got != 1 {
			t.Errorf("%d dispatch entries, want 1", got)
		}
		found, err := r.Dispatches(r.ctx(), "n1", "", 0, 10)
		if err != nil || len(found) != 4 {
			t.Fatalf("%+v, %v, expected 4 entries", found, err)
		}
		for i, d := range found {
			want := subs[i]
			if d.Attempt != (Attempt{want.JobID, 1}) || d.Tenant != want.Tenant || !cmp.Equal(d.Job, want.Job) || d.ID == "" {
				t.Errorf("job %d is %+v, want %s", i, d, want.JobID)
			}
		}
		if held, sum := r.slots("n1"); len(held) != 4 || sum != 4 {
			t.Errorf("the node holds %v, sum %d", held, sum)
		}

		var ends []Completion
		for i := range subs {
			end := succeed("n1", epoch, subs[i].JobID)
			if i >= 2 {
				end.State, end.Result, end.Error = freeslot.StateFailed, nil, &freeslot.JobError{Code: "broken", Message: "it is"}
			}
			ends = append(ends, end)
		}
		if out, err := r.complete(r.ctx(), ends); err != nil || slices.ContainsFunc(out, func(o CompletionOutcome) bool { return o != Completed }) {
			t.Fatalf("%v, %v; want no error, not slices.ContainsFunc(out, func(o CompletionOutcome) bool { return o != Completed })", out, err)
		}
		if got := len(r.stream(r.l.Replies("r1"))); got != 2 {
			t.Errorf("%d reply entries, want 2: the first says that the stream is open", got)
		}
		replies, err := r.Replies(r.ctx(), "r1", "", 0, 10)
		if err != nil || len(replies) != 5 {
			t.Fatalf("%+v, %v, expected 5 entries", replies, err)
		}
		for i, reply := range replies[1:] {
			want := r.status(subs[i].JobID)
			if reply.Status.ID != want.ID || reply.Status.State != want.State || string(reply.Status.Result) != string(want.Result) || !cmp.Equal(reply.Status.Error, want.Error) {
				t.Errorf("reply %d is %+v, want %+v", i, reply.Status, want)
			}
		}
	})
}
