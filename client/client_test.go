package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/session"
)

func TestRun(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{Name: "test"}, newFleet(t).replica(session.Config{}))
	status, err := c.Run(deadline(t), freeslot.Job{Service: "echo", Payload: json.RawMessage(`{"a": 1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if status.State != freeslot.StateSucceeded || string(status.Result) != `{"a":1}` || status.Tenant != "acme" {
		t.Errorf("status %+v", status)
	}
}

func TestHandle(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{}))
	before := time.Now()
	h := submit(t, c, "hold")
	<-h.Assigned()
	if a := h.Assignment(); a.Node != "node-1" || a.Attempt != 1 || a.At.Before(before) || a.At.After(time.Now()) {
		t.Errorf("assignment %+v", a)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait returned %v", err)
	}
	status, err := c.Cancel(deadline(t), h.ID())
	if err != nil || status.State != freeslot.StateCancelled {
		t.Errorf("Cancel returned %+v, %v", status, err)
	}
	for range 2 {
		if got := wait(t, h); got.State != freeslot.StateCancelled {
			t.Errorf("status %+v", got)
		}
	}
	if got, err := h.Wait(ended); err != nil || got.State != freeslot.StateCancelled {
		t.Errorf("the result is known, and yet Wait returned %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{}, newFleet(t).replica(session.Config{MaxPayloadBytes: 10}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		job  freeslot.Job
		code freeslot.Code
		text string
	}{
		"invalid":   {t.Context(), freeslot.Job{Service: "a b"}, freeslot.CodeInvalidArgument, "job.service"},
		"too large": {t.Context(), freeslot.Job{Service: "echo", Payload: json.RawMessage(`"0123456789"`)}, freeslot.CodePayloadTooLarge, "job.payload"},
		"busy":      {t.Context(), freeslot.Job{Service: "busy"}, freeslot.CodeOverloaded, "busy"},
		"ended":     {ended, freeslot.Job{Service: "echo"}, freeslot.CodeUnavailable, "nothing was sent"},
	} {
		h, err := c.Submit(tt.ctx, tt.job)
		if h != nil || freeslot.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, %v; want h == nil, freeslot.CodeOf(err) == %v, strings.Contains(err.Error(), tt.text)", name, h, err, tt.code)
		}
	}
	if _, err := c.Cancel(deadline(t), "0-none"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("Cancel: %v", err)
	}
	if _, err := c.Attach(deadline(t), "0-none"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("Attach: %v", err)
	}
}

func TestSubmitBatch(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{MaxBatch: 3, MaxPayloadBytes: 100}))
	var jobs []freeslot.Job
	for i := range 10 {
		jobs = append(jobs, freeslot.Job{Service: "echo", Payload: json.RawMessage(fmt.Sprint(i))})
	}
	jobs[2].Service = "a b"
	jobs[5].Service = "busy"
	jobs[7].Payload = json.RawMessage(`"` + strings.Repeat("x", 100) + `"`)
	results, err := c.SubmitBatch(deadline(t), jobs)
	if err != nil || len(results) != len(jobs) {
		t.Fatalf("%d results, error %v", len(results), err)
	}
	for i, r := range results {
		want := map[int]freeslot.Code{2: freeslot.CodeInvalidArgument, 5: freeslot.CodeOverloaded, 7: freeslot.CodePayloadTooLarge}[i]
		if freeslot.CodeOf(r.Err) != want || (r.Handle == nil) != (want != "") {
			t.Errorf("job %d: %+v, want code %q", i, r, want)
			continue
		}
		if r.Handle != nil {
			if got := wait(t, r.Handle); string(got.Result) != fmt.Sprint(i) {
				t.Errorf("job %d: result %s", i, got.Result)
			}
		}
	}
	if f.submits != 3 { // 8 good jobs in frames of 3
		t.Errorf("%d frames were sent, want 3", f.submits)
	}
	if _, err := c.SubmitBatch(deadline(t), nil); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Errorf("empty batch: %v", err)
	}
}

// TestSubmitBatchBySize: a batch over the frame limit is split, even if its number of jobs is not
// over the limit.
func TestSubmitBatchBySize(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{MaxPayloadBytes: 40 << 10, MaxFrameBytes: 1}))
	jobs := make([]freeslot.Job, 20)
	for i := range jobs {
		jobs[i] = freeslot.Job{Service: "echo", Payload: json.RawMessage(`"` + strings.Repeat("x", 40<<10-2) + `"`)}
	}
	results, err := c.SubmitBatch(deadline(t), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Errorf("job %d: %v", i, r.Err)
		}
	}
	if f.submits != 10 { // 104 KiB a frame hold two jobs
		t.Errorf("%d frames were sent, want 10", f.submits)
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica(session.Config{})
	first, second := dial(t, client.Options{}, r), dial(t, client.Options{}, r)
	h := submit(t, first, "hold")
	if again, err := first.Attach(deadline(t), h.ID()); err != nil || again != h {
		t.Errorf("attach to an own job: %v, %v", again, err)
	}
	taken, err := second.Attach(deadline(t), h.ID())
	if err != nil {
		t.Fatal(err)
	}
	if a := taken.Assignment(); a.Node != "node-1" {
		t.Errorf("assignment %+v", a)
	}
	if _, err := h.Wait(deadline(t)); freeslot.CodeOf(err) != freeslot.CodeUnavailable || !strings.Contains(err.Error(), "attached") {
		t.Errorf("Wait returned %v", err)
	}
	f.finish(h.ID(), freeslot.StateSucceeded, json.RawMessage("7"))
	if got := wait(t, taken); string(got.Result) != "7" {
		t.Errorf("status %+v", got)
	}
	done, err := first.Attach(deadline(t), h.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got := wait(t, done); string(got.Result) != "7" {
		t.Errorf("status %+v", got)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{}))
	h := submit(t, c, "hold")
	entered, release := make(chan struct{}), make(chan struct{})
	f.mu.Lock()
	f.submitting = func() { close(entered); <-release }
	f.mu.Unlock()
	pending := make(chan error, 1)
	go func() {
		_, err := c.Submit(context.Background(), freeslot.Job{Service: "hold"})
		pending <- err
	}()
	<-entered
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-pending; !errors.Is(err, client.ErrClosed) {
		t.Errorf("Submit under way returned %v", err)
	}
	if _, err := h.Wait(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("Wait returned %v", err)
	}
	if _, err := c.Submit(t.Context(), freeslot.Job{Service: "echo"}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("Submit returned %v", err)
	}
	if _, err := c.SubmitBatch(t.Context(), []freeslot.Job{{Service: "echo"}}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("SubmitBatch returned %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestDialErrors(t *testing.T) {
	t.Parallel()
	r := newFleet(t).replica(session.Config{MaxSessions: 1})
	for _, tt := range []struct {
		url  string
		opts client.Options
		code freeslot.Code
		text string
	}{
		{r.url, client.Options{}, freeslot.CodeUnauthenticated, "no token"},
		{"ws://127.0.0.1:1/?access_token=hidden", client.Options{}, freeslot.CodeUnavailable, "127.0.0.1:1"},
		{"ws://127.0.0.1:1," + r.url, client.Options{}, freeslot.CodeUnavailable, "no token"},
		{"", client.Options{}, freeslot.CodeInternal, "no URL"},
		{"redis://x", client.Options{}, freeslot.CodeInternal, "scheme"},
		{"localhost:7480", client.Options{}, freeslot.CodeInternal, "no scheme"},
		{"127.0.0.1:7480", client.Options{}, freeslot.CodeInternal, "no scheme"},
		{"ws://", client.Options{}, freeslot.CodeInternal, "no host"},
		{"ws://%zz?access_token=hidden", client.Options{}, freeslot.CodeInternal, "URL 1"},
	} {
		_, err := client.Dial(deadline(t), tt.url, tt.opts)
		if freeslot.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "hidden") {
			t.Errorf(`%q: %v; want freeslot.CodeOf(err) == %v, strings.Contains(err.Error(), tt.text), not strings.Contains(err.Error(), "hidden")`, tt.url, err, tt.code)
		}
	}
	// The first URL is dead, the second alive.
	c, err := client.Dial(deadline(t), "ws://127.0.0.1:1, "+r.url+"/v1/ws", client.Options{Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Dial(deadline(t), r.url, client.Options{Token: "secret"}); freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		t.Errorf("full replica: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestTracing(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	f := newFleet(t)
	c := dial(t, client.Options{TracerProvider: provider}, f.replica(session.Config{}))
	ctx, parent := provider.Tracer("test").Start(deadline(t), "caller")
	if _, err := c.Run(ctx, freeslot.Job{Service: "echo"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), freeslot.Job{Service: "busy", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}); err == nil {
		t.Fatal("no error")
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans ended, want 2", len(ended))
	}
	run := ended[0]
	if run.Parent().SpanID() != parent.SpanContext().SpanID() || len(run.Events()) != 1 {
		t.Errorf("parent %v, events %v", run.Parent(), run.Events())
	}
	if want := run.SpanContext().SpanID().String(); !strings.Contains(f.parents[0], want) {
		t.Errorf("the job carries %q, want the span %s", f.parents[0], want)
	}
	if got := ended[1].Parent().SpanID().String(); got != "b7ad6b7169203331" {
		t.Errorf("parent %s, want the job's", got)
	}
}
