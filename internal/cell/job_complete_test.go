package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/script"
)

func TestComplete(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(testNode("n1", 2))
		for _, c := range []struct {
			name   string
			end    Completion
			result string
			err    *freeslot.JobError
		}{
			{"succeeded", Completion{State: freeslot.StateSucceeded, Result: json.RawMessage(`{"a":"é"}`)}, `{"a":"é"}`, nil},
			{"no result", Completion{State: freeslot.StateSucceeded}, `null`, nil},
			{
				"failed",
				Completion{State: freeslot.StateFailed, Error: &freeslot.JobError{Code: "boom", Message: "a \"b\"\n"}},
				"", &freeslot.JobError{Code: "boom", Message: "a \"b\"\n"},
			},
			{"cancelled", Completion{State: freeslot.StateCancelled}, "", nil},
		} {
			job := r.place("r1", 1, "n1")
			before := r.nowMS()
			c.end.Node, c.end.Epoch, c.end.Attempt = "n1", epoch, Attempt{job, 1}
			if out, err := r.Complete(r.ctx(), c.end); err != nil || out != Completed {
				t.Fatalf("%s: %v, %v; want no error, out == Completed", c.name, out, err)
			}
			s := r.status(job)
			if s.FinishedAtMS < before || s.FinishedAtMS > r.nowMS() {
				t.Errorf("%s: finished at %d", c.name, s.FinishedAtMS)
			}
			want := freeslot.JobStatus{
				ID: job, Tenant: "acme", Service: "echo", Class: echo, State: c.end.State, Node: "n1", Attempt: 1, Slots: 1,
				Result: json.RawMessage(c.result), Error: c.err,
				SubmittedAtMS: s.SubmittedAtMS, AssignedAtMS: s.SubmittedAtMS, FinishedAtMS: s.FinishedAtMS,
			}
			if c.result == "" {
				want.Result = nil
				past := freeslot.PastAttempt{
					Attempt: 1, Node: "n1", BeganAtMS: s.AssignedAtMS, EndedAtMS: s.FinishedAtMS, Ended: freeslot.AttemptEnd(c.end.State),
				}
				if c.err != nil {
					past.Code = c.err.Code
				}
				want.Attempts = []freeslot.PastAttempt{past}
			}
			if d := cmp.Diff(want, s); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, d)
			}
			if ttl := r.int("PTTL", r.l.Job(job)); ttl <= 0 || ttl > DefaultRetention.Milliseconds() {
				t.Errorf("%s: TTL %d ms", c.name, ttl)
			}
			if score := r.scores(r.l.Finished())[job]; int64(score/1000) != s.FinishedAtMS {
				t.Errorf("%s: finished at %d, index says %.0f us", c.name, s.FinishedAtMS, score)
			}
			replies, err := r.Replies(r.ctx(), "r1", "", 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			reply := Reply{ID: replies[len(replies)-1].ID, Status: freeslot.JobStatus{
				ID: job, State: want.State, Node: "n1", Attempt: 1, Result: want.Result, Error: want.Error, FinishedAtMS: want.FinishedAtMS,
			}}
			if d := cmp.Diff(reply, replies[len(replies)-1]); d != "" {
				t.Errorf("%s: reply (-want +got):\n%s", c.name, d)
			}
		}
		if held, sum := r.slots("n1"); len(held) != 0 || sum != 0 {
			t.Errorf("slots %v, sum %d", held, sum)
		}
		r.sound()
	})
}

// TestCompleteStale: whoever does not own the attempt changes nothing.
func TestCompleteStale(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch, other := r.register(testNode("n1", 2)), r.register(testNode("n2", 2))
		running, done := r.place("", 1, "n1"), r.place("", 1, "n1")
		r.end("n1", epoch, done)
		for _, c := range []struct {
			name    string
			node    string
			epoch   Epoch
			attempt Attempt
			want    CompletionOutcome
		}{
			{"other node", "n2", other, Attempt{running, 1}, CompletedStale},
			{"other node, same epoch", "n2", epoch, Attempt{running, 1}, CompletedStale},
			{"other epoch", "n1", other, Attempt{running, 1}, CompletedStale},
			{"earlier attempt", "n1", epoch, Attempt{running, 0}, CompletedStale},
			{"later attempt", "n1", epoch, Attempt{running, 2}, CompletedStale},
			{"attempt by prefix", "n1", epoch, Attempt{running, 11}, CompletedStale},
			{"unknown job", "n1", epoch, Attempt{NewJobID(0), 1}, CompletedStale},
			{"unknown node", "n3", epoch, Attempt{running, 1}, CompletedStale},
			{"done", "n1", epoch, Attempt{done, 1}, CompletedBefore},
			{"done, other attempt", "n1", epoch, Attempt{done, 2}, CompletedStale},
			{"done, other epoch", "n1", other, Attempt{done, 1}, CompletedStale},
		} {
			comp := succeed(c.node, c.epoch, c.attempt.Job)
			comp.Attempt.N = c.attempt.N
			r.unchanged(c.name, func() {
				if out, err := r.Complete(r.ctx(), comp); err != nil || out != c.want {
					t.Errorf("%s: %v, %v; want %v", c.name, out, err, c.want)
				}
			}, nil)
		}
	})
}

// TestCompleteBatch: one call with items of every outcome, the same job twice among
// them; the slots of all are freed together.
func TestCompleteBatch(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 6))
		a, b, c := r.place("", 1, "n1"), r.place("", 2, "n1"), r.place("", 3, "n1")
		hear := r.listen()
		got, err := r.Cell.complete(r.ctx(), []Completion{
			succeed("n1", epoch, a), succeed("n1", epoch, NewJobID(0)), succeed("n1", epoch, b), succeed("n1", epoch, a),
		})
		want := []CompletionOutcome{Completed, CompletedStale, Completed, CompletedBefore}
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
		if held, sum := r.slots("n1"); sum != 3 || len(held) != 1 || held[c].slots != 3 {
			t.Errorf("slots %v, sum %d", held, sum)
		}
		heard := hear.drain()
		if len(heard) != 1 || heard[0].Kind != events.SlotFree || heard[0].Used != 3 || heard[0].MaxConcurrency != 6 || heard[0].Status != freeslot.StatusOnline {
			t.Errorf("events %+v", heard)
		}
		r.end("n1", epoch, c)
		if heard := hear.drain(); len(heard) != 0 {
			t.Errorf("a node that had free slots was announced: %+v", heard)
		}
		scores := make(map[float64]bool)
		for _, s := range r.scores(r.l.Finished()) {
			scores[s] = true
		}
		if len(scores) != 3 {
			t.Errorf("%d different places in the index of 3 finished jobs", len(scores))
		}
		r.sound()
	})
}

// TestCompleteLargeResult: a large result is kept in the record only.
func TestCompleteLargeResult(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(testNode("n1", 2))
		for size, partial := range map[int]bool{inlineResult: false, inlineResult + 1: true} {
			job := r.place("r1", 1, "n1")
			comp := succeed("n1", epoch, job)
			comp.Result = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
			if out, err := r.Complete(r.ctx(), comp); err != nil || out != Completed {
				t.Fatalf("%v, %v, expected %v", out, err, Completed)
			}
			replies, err := r.Replies(r.ctx(), "r1", "", 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			last := replies[len(replies)-1]
			if last.Status.ID != job || last.Partial != partial || !partial && string(last.Status.Result) != string(comp.Result) {
				t.Errorf("%d bytes: partial %v, %d bytes in the reply", size, last.Partial, len(last.Status.Result))
			}
			if got := r.status(job); string(got.Result) != string(comp.Result) {
				t.Errorf("%d bytes: record has %d", size, len(got.Result))
			}
		}
	})
}

// TestCompleteWithoutReplica: no stream is made for a replica that is gone.
func TestCompleteWithoutReplica(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		for _, replica := range []string{"gone", ""} {
			job := r.place(replica, 1, "n1")
			r.end("n1", epoch, job)
			if r.exists(r.l.Replies(replica)) {
				t.Errorf("replica %q has a stream", replica)
			}
			if r.status(job).State != freeslot.StateSucceeded {
				t.Error("no result in the record")
			}
		}
	})
}

func TestCompleteRefused(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		job := r.place("", 1, "n1")
		for name, change := range map[string]func(*Completion){
			"running":              func(c *Completion) { c.State = freeslot.StateRunning },
			"no state":             func(c *Completion) { c.State = "" },
			"failed for no reason": func(c *Completion) { c.State = freeslot.StateFailed },
			"result is no JSON":    func(c *Completion) { c.Result = json.RawMessage(`{"a":`) },
		} {
			comp := succeed("n1", epoch, job)
			change(&comp)
			r.unchanged(name, func() {
				out, err := r.Complete(r.ctx(), comp)
				if out != "" {
					t.Errorf(`%s: %v; want out == ""`, name, out)
				}
				wantErr(t, err, freeslot.CodeInvalidArgument)
			}, nil)
		}
	})
}

// TestRetention: whoever ends a job keeps its record as long as the replica that
// took it was told.
func TestRetention(t *testing.T) {
	racing(t, 1, func(t *testing.T, r *rig, _ []*Cell) {
		day := 24 * time.Hour
		replica := open(t, r.redis, func(c *Config) { c.Layout, c.Retention = r.l, day })
		epoch := r.register(testNode("n1", 3))
		subs := []Submission{submission("", "n1"), submission("", "n1"), submission("", "n1")}
		for _, s := range subs {
			s.Job.MaxAttempts = 1
		}
		for _, res := range replica.SubmitAll(r.ctx(), subs) {
			if res.Err != nil || !res.Placement.Assigned {
				t.Fatal(res)
			}
		}
		// An index entry older than the agent's own retention, younger than the replica's.
		r.do("ZADD", r.l.Finished(), strconv.FormatInt((r.nowMS()-2*DefaultRetention.Milliseconds())*1000, 10), "older")
		r.do("SET", r.l.Job("older"), "", "EX", "1000")
		r.end("n1", epoch, subs[0].JobID)
		if _, err := r.Register(r.ctx(), testNode("n1", 3), NewEpoch()); err != nil {
			t.Fatal(err)
		}
		for _, s := range subs {
			if ttl := r.int("PTTL", r.l.Job(s.JobID)); ttl <= DefaultRetention.Milliseconds() || ttl > day.Milliseconds() {
				t.Errorf("TTL %d ms", ttl)
			}
		}
		if _, ok := r.scores(r.l.Finished())["older"]; !ok {
			t.Error("the index lost a job within the replica's retention")
		}
		r.do("ZREM", r.l.Finished(), "older")
		r.do("DEL", r.l.Job("older"))
	})
}

// forgetLimit and forgetItems have the values of lib/forget_old.lua.
const forgetLimit, forgetItems = 1000, 16

// TestForget: the index of finished jobs loses what is older than the retention, a
// bounded part in a call; where calls end few jobs one of several does it.
func TestForget(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2*forgetItems))
		for _, waits := range []bool{false, true} { // by the branch of plain ends, and by the general one
			if waits {
				s := submission("")
				s.Job.Service = "tts" // no job of the class of those that end waits
				r.enqueued(s)
			}
			old := r.nowMS()*1000 - DefaultRetention.Microseconds() - 1
			add := func(n int) {
				args := []string{"ZADD", r.l.Finished(), strconv.FormatInt(old+patience.Microseconds()*10, 10), "young"}
				for i := range n {
					args = append(args, strconv.FormatInt(old-int64(i), 10), fmt.Sprintf("old-%04d", i))
				}
				r.do(args...)
			}
			left := func(items int) (n int) {
				ends := make([]Completion, items)
				for i := range ends {
					ends[i] = succeed("n1", epoch, r.place("", 1, "n1"))
				}
				if _, err := r.Cell.complete(r.ctx(), ends); err != nil {
					t.Fatal(err)
				}
				for member := range r.scores(r.l.Finished()) {
					if strings.HasPrefix(member, "old-") {
						n++
					}
				}
				return n
			}
			const more = 10
			add(forgetLimit + more)
			for _, want := range []int{more, 0} {
				if n := left(forgetItems + 1); n != want {
					t.Errorf("%d old ones left, want %d", n, want)
				}
			}
			add(more)
			n := more
			for range 1000 { // 1 in 10^28 that so many pass it by
				if n = left(1); n == 0 {
					break
				}
			}
			if n > 0 {
				t.Errorf("calls of one job left %d old ones", n)
			}
			if _, ok := r.scores(r.l.Finished())["young"]; !ok {
				t.Error("a job within the retention was forgotten")
			}
		}
	})
}

// TestCompleteOnShrunkNode: a node that now offers fewer slots than are in use is
// full until one of the fewer is free.
func TestCompleteOnShrunkNode(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		var jobs []string
		for range 4 {
			jobs = append(jobs, r.place("", 1, "n1"))
		}
		hear := r.listen()
		if _, err := r.Register(r.ctx(), testNode("n1", 2), epoch); err != nil {
			t.Fatal(err)
		}
		if heard := hear.drain(); len(heard) != 1 || heard[0].Used != 4 || heard[0].MaxConcurrency != 2 {
			t.Errorf("events %+v", heard)
		}
		for i, announced := range []int{0, 0, 1, 0} {
			if p, err := r.Submit(r.ctx(), submission("", "n1")); err != nil || p.Assigned != (i == 3) {
				t.Fatalf("with %d slots in use: %+v, %v", 4-i, p, err)
			} else if p.Assigned {
				hear.drain() // full again
				break
			}
			r.end("n1", epoch, jobs[i])
			if heard := hear.drain(); len(heard) != announced {
				t.Errorf("%d slots in use: events %+v", 3-i, heard)
			}
		}
	})
}

// TestCompleteGivenUp: whoever may not wait any more, and whoever comes after the stop, is told so and not kept.
func TestCompleteGivenUp(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		complete := func(ctx context.Context) error {
			answered := make(chan error, 1)
			go func() {
				_, err := r.Complete(ctx, succeed("n1", epoch, job))
				answered <- err
			}()
			return receive(t, answered)
		}
		ended, cancel := context.WithCancel(r.ctx())
		cancel()
		if err := complete(ended); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		if err := r.Stop(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if err := complete(r.ctx()); !errors.Is(err, ErrStopped) {
			t.Errorf("after the stop: %v", err)
		}
		if queued := r.completions.Queued(); queued > 0 {
			t.Errorf("%d completions are queued where nobody takes them", queued)
		}
	})
}

// TestCompleteExpiredKeepsItsError: the deadline passed while the handler failed. The job expires with the handler's error.
func TestCompleteExpiredKeepsItsError(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		r.do("HSET", r.layout.Job(job), "state", "cancelling", "why", "expired")
		failed := succeed("n1", epoch, job)
		failed.State, failed.Result, failed.Next = freeslot.StateFailed, nil, Retry
		failed.Error = &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "no model"}
		if out, err := r.Complete(r.ctx(), failed); err != nil || out != Completed {
			t.Fatalf("%v, %v, expected %v", out, err, Completed)
		}
		if s := r.status(job); s.State != freeslot.StateExpired || s.Error == nil || s.Error.Message != "no model" {
			t.Errorf("%+v, error %+v", s, s.Error)
		}
	})
}

// TestStopAwaitsCompletion: also one that its caller makes itself.
func TestStopAwaitsCompletion(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		job := r.place("", 1, "n1")
		begun, goOn := make(chan struct{}), make(chan struct{})
		if err := r.completions.Stop(r.ctx()); err != nil {
			t.Fatal(err)
		}
		cfg := r.completeBatch()
		run := cfg.Run
		cfg.Run = func(ctx context.Context, in []Completion) ([]CompletionOutcome, error) {
			close(begun)
			<-goOn
			select {
			case <-r.stopped:
				t.Error("the cell was stopped during the call")
			default:
			}
			return run(ctx, in)
		}
		r.completions = script.NewBatch(r.runner, cfg)
		r.completions.Start()
		ended := make(chan error, 1)
		go func() {
			_, err := r.Complete(r.ctx(), succeed("n1", epoch, job))
			ended <- err
		}()
		<-begun
		impatient, cancel := context.WithTimeout(r.ctx(), 20*time.Millisecond)
		defer cancel()
		if err := r.Stop(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the stop ended before the call: %v", err)
		}
		if err := errors.Join(r.submits.Stop(r.ctx()), r.enqueues.Stop(r.ctx())); err != nil { // the call alone keeps the cell from being stopped
			t.Error(err)
		}
		close(goOn)
		if err := r.Stop(r.ctx()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
