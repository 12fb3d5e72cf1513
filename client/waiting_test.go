package client_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/session"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

// TestJobThatWaits: Submit returns at once. Assigned is closed with the first attempt, and the
// assignment is the last one.
func TestJobThatWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{}))
	h := submit(t, c, "wait")
	if h.Position() != 3 {
		t.Errorf("position %d, want 3", h.Position())
	}
	select {
	case <-h.Assigned():
		t.Error("assigned to", h.Assignment())
	default:
	}
	f.place(h.ID(), "node-1")
	<-h.Assigned()
	if a := h.Assignment(); a.Node != "node-1" || a.Attempt != 1 {
		t.Errorf("assignment %+v", a)
	}
	f.requeue(h.ID(), freeslot.StateWaiting)
	f.place(h.ID(), "node-2")
	f.finish(h.ID(), freeslot.StateSucceeded, json.RawMessage("7"))
	if got := wait(t, h); string(got.Result) != "7" || got.Attempt != 2 || got.Failures != 1 {
		t.Errorf("status %+v", got)
	}
	if a := h.Assignment(); a.Node != "node-2" || a.Attempt != 2 {
		t.Errorf("assignment %+v", a)
	}
	if got := submit(t, c, "hold").Position(); got != 0 {
		t.Errorf("position %d of a job that does not wait", got)
	}
}

// TestWaitingSurvivesACrash: the client attaches to a job that waits, for the first time or again,
// and gets its attempts and its end from another replica.
func TestWaitingSurvivesACrash(t *testing.T) {
	t.Parallel()
	for _, state := range []freeslot.State{freeslot.StateWaiting, freeslot.StateRetryWait} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			first, second := f.replica(session.Config{}), f.replica(session.Config{})
			c := dial(t, client.Options{}, first, second)
			fresh, again := submit(t, c, "wait"), submit(t, c, "wait")
			f.place(again.ID(), "node-1")
			<-again.Assigned()
			f.requeue(again.ID(), state)
			first.kill()
			f.attached(t, 2)
			select {
			case <-fresh.Assigned():
				t.Error("assigned to", fresh.Assignment())
			default:
			}
			for _, h := range []*client.Handle{fresh, again} {
				f.place(h.ID(), "node-2")
				f.finish(h.ID(), freeslot.StateDead, nil)
				if got := wait(t, h); got.State != freeslot.StateDead || got.Node != "node-2" {
					t.Errorf("status %+v", got)
				}
				if a := h.Assignment(); a.Node != "node-2" {
					t.Errorf("assignment %+v", a)
				}
			}
		})
	}
}

// attached waits until n attaches have reached any replica.
func (f *fleet) attached(t *testing.T, n int) {
	t.Helper()
	got := 0
	waittest.Until(t, fmt.Sprint(n, " attaches"), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		got = f.attaches
		return got >= n
	}, func() any { return got })
}

// TestAttachToAJobThatWaits: the handle has no assignment while the job waits, even if it ran
// before.
func TestAttachToAJobThatWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica(session.Config{})
	id := submit(t, dial(t, client.Options{}, r), "wait").ID()
	f.place(id, "node-1")
	f.requeue(id, freeslot.StateWaiting)
	h, err := dial(t, client.Options{}, r).Attach(deadline(t), id)
	if err != nil || h.Position() != 1 {
		t.Fatal(h, err)
	}
	select {
	case <-h.Assigned():
		t.Error("assigned to", h.Assignment())
	default:
	}
	f.place(id, "node-2")
	<-h.Assigned()
	if a := h.Assignment(); a.Node != "node-2" || a.Attempt != 2 {
		t.Errorf("assignment %+v", a)
	}
	f.finish(id, freeslot.StateExpired, nil)
	if got := wait(t, h); got.State != freeslot.StateExpired {
		t.Errorf("status %+v", got)
	}
}

// TestSpanOfAJobThatExpired: the span has an error, although no handler returned one.
func TestSpanOfAJobThatExpired(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	f := newFleet(t)
	c := dial(t, client.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}, f.replica(session.Config{}))
	h := submit(t, c, "wait")
	f.finish(h.ID(), freeslot.StateExpired, nil)
	wait(t, h)
	if ended := spans.Ended(); len(ended) != 1 || ended[0].Status().Description != "expired" {
		t.Errorf("spans %v", ended)
	}
}

// TestSubmitBatchOfDemandingJobs: every field of a job counts for the size of a frame.
func TestSubmitBatchOfDemandingJobs(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`"`, 128)
	job := freeslot.Job{
		Service: "echo", AffinityKey: text, IdempotencyKey: text, ConcurrencyKey: text, ConcurrencyLimit: freeslot.MaxConcurrencyLimit, Slots: freeslot.MaxSlots, Priority: freeslot.MaxPriority, MaxAttempts: freeslot.MaxMaxAttempts,
		TimeoutMS: freeslot.MaxTimeoutMS, Requirement: freeslot.Requirement{PreferredPool: strings.Repeat("p", 64), Labels: map[string]string{"a": text}},
	}
	for range 32 {
		rule := freeslot.LabelRule{Label: strings.Repeat("l", 64), Operator: freeslot.LabelNotIn}
		for range 2 {
			rule.Values = append(rule.Values, text)
		}
		job.Requirement.LabelRules = append(job.Requirement.LabelRules, rule)
	}
	for range freeslot.MaxFeatures {
		job.Requirement.Features = append(job.Requirement.Features, strings.Repeat("f", 64))
	}
	jobs := make([]freeslot.Job, 12)
	for i := range jobs {
		jobs[i] = job
	}
	const payload, envelope = 40 << 10, 64 << 10 // their sum is the least that a frame may have
	if n := len(wire.AppendSubmitBatch(nil, "r", jobs)); n < 2*(payload+envelope) {
		t.Fatalf("all of them make a frame of %d bytes, which proves nothing", n)
	}
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{MaxPayloadBytes: payload, MaxFrameBytes: 1}))
	results, err := c.SubmitBatch(deadline(t), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("job %d: %v", i, r.Err)
		}
	}
}

// TestIdempotencyKeyTwice: two submits with one key make one job.
func TestIdempotencyKeyTwice(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{}))
	job := freeslot.Job{Service: "hold", IdempotencyKey: "k"}
	first, err := c.Submit(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Submit(t.Context(), job)
	if err != nil || second.ID() != first.ID() {
		t.Fatalf("%v, %v, expected job %s", second, err, first.ID())
	}
	f.finish(first.ID(), freeslot.StateSucceeded, json.RawMessage("7"))
	for _, h := range []*client.Handle{first, second} {
		if got := wait(t, h); string(got.Result) != "7" {
			t.Errorf("status %+v", got)
		}
	}
}
