package tracing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/process/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestOffIsFree(t *testing.T) {
	t.Parallel()
	tr, err := tracing.Open(t.Context(), tracing.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := tr.Provider().Tracer("test").Start(tracing.Parent(t.Context(), parent), "submit")
	if span.IsRecording() {
		t.Error("a span is recorded although tracing is off")
	}
	if got := tracing.TraceParent(ctx); got != parent {
		t.Errorf("the caller's trace context became %q, expected it handed on", got)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSpansReachCollector(t *testing.T) {
	t.Parallel()
	paths := make(chan string, 8)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }))
	defer collector.Close()
	tr, err := tracing.Open(t.Context(), tracing.Config{Endpoint: collector.URL, SampleRatio: 1, Service: "freeslot-scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := tr.Provider().Tracer("test").Start(tracing.Parent(t.Context(), parent), "submit")
	if got := trace.SpanContextFromContext(ctx).TraceID().String(); got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("trace id is %s, expected the caller's", got)
	}
	span.End()
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-paths; got != "/v1/traces" {
		t.Errorf("spans were sent to %s", got)
	}
}

func TestCallerDecidesSampling(t *testing.T) {
	t.Parallel()
	tr, err := tracing.Open(t.Context(), tracing.Config{Endpoint: "http://127.0.0.1:1", SampleRatio: 1})
	if err != nil {
		t.Fatal(err)
	}
	const unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	_, span := tr.Provider().Tracer("test").Start(tracing.Parent(t.Context(), unsampled), "submit")
	if span.IsRecording() {
		t.Error("a span of a trace that the caller does not sample is recorded")
	}
	span.End()
	if err := tr.Close(t.Context()); err != nil {
		t.Error("nothing to send, yet:", err)
	}
}

func TestTraceParent(t *testing.T) {
	t.Parallel()
	if got := tracing.TraceParent(context.Background()); got != "" {
		t.Errorf("without a span: %q", got)
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	if got := tracing.TraceID("00-" + id + "-b7ad6b7169203331-01"); got != id {
		t.Errorf("the trace is %q; want %s", got, id)
	}
	for _, bad := range []string{"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		if got := tracing.TraceParent(tracing.Parent(t.Context(), bad)); got != "" {
			t.Errorf("%q is taken for a trace context: %q", bad, got)
		}
		if got := tracing.TraceID(bad); got != "" {
			t.Errorf("%q has the trace %q; want none", bad, got)
		}
	}
}
