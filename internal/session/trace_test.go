package session

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestSpans(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	d := newFakeDispatcher()
	parents := make(chan string, 10)
	d.submitting = func(reqs []dispatch.Request) {
		for _, r := range reqs {
			parents <- r.Job.TraceParent
		}
	}
	s := serve(t, Config{TracerProvider: provider}, d)
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","jobs":[{"service":"hold","traceparent":"` + traceParent + `"},{"service":"busy"}]}`)
	p.expect(`{"type":"accepted","id":"r1","index":0,"job_id":"…job"}`)
	p.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	p.expect(`{"type":"error","id":"r1","index":1,"code":"overloaded","message":"too many jobs wait","retry_after_ms":200}`)
	first, second := waitFor(t, parents, "a job"), waitFor(t, parents, "a job")
	_ = p.conn.CloseNow()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans ended, want 2", len(ended))
	}
	accepted, refused := ended[0], ended[1]
	if got := accepted.Parent().SpanID().String(); got != "b7ad6b7169203331" {
		t.Errorf("the parent is %s, want the job's", got)
	}
	want := "00-0af7651916cd43dd8448eb211c80319c-" + accepted.SpanContext().SpanID().String() + "-01"
	if first != want {
		t.Errorf("the job goes on with %s, want %s", first, want)
	}
	if refused.Parent().IsValid() || refused.Status().Code != codes.Error || refused.Status().Description != "overloaded" {
		t.Errorf("refused job: parent %v, status %v", refused.Parent(), refused.Status())
	}
	if !strings.Contains(second, refused.SpanContext().TraceID().String()) {
		t.Errorf("an untraced job goes on with %q, want the trace that began here", second)
	}
	if accepted.SpanKind() != trace.SpanKindServer || accepted.Name() != "freeslot.submit" {
		t.Errorf("span %s of kind %s", accepted.Name(), accepted.SpanKind())
	}
}

// TestTracingOff: without a provider a job keeps its own trace context, and gets none if it has
// none.
func TestTracingOff(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{"", traceParent} {
		job := freeslot.Job{TraceParent: parent}
		span := newTracer(nil).start(&job, "acme")
		endSpan(span, "0-1", nil)
		if job.TraceParent != parent || span.IsRecording() {
			t.Errorf("traceparent %q became %q, recording: %v", parent, job.TraceParent, span.IsRecording())
		}
	}
}

// TestLog checks the events of a session in the log, and that nothing secret is logged.
func TestLog(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	d := newFakeDispatcher()
	s := serve(t, Config{}, d)
	s.log = zap.New(core)
	p := s.connect("?access_token=hidden")
	p.send(`{"type":"submit","id":"r1","job":{"service":"broken","payload":"hidden"}}`)
	p.expect(`{"type":"error","id":"r1","code":"internal","message":"internal error, see the replica's log"}`)
	_ = p.conn.CloseNow()
	waitFor(t, d.forgotten, "the session to end")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, line := range logs.All() {
		events = append(events, line.Message)
		for key, value := range line.ContextMap() {
			if text, ok := value.(string); ok && strings.Contains(text, "hidden") {
				t.Errorf("%s logs %s=%s", line.Message, key, text)
			}
		}
	}
	if got := strings.Join(events, " "); got != "session.opened session.request_failed session.closed" {
		t.Errorf("logged %s", got)
	}
	failed := logs.FilterMessage("session.request_failed").All()
	if len(failed) != 1 || failed[0].ContextMap()["error"] != "secret" {
		t.Errorf("the defect is not in the log: %v", failed)
	}
}
