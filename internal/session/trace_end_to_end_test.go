package session

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// TestOneTraceForReal: client, replica and worker each have a tracer provider of their own, as
// separate processes would. Together they export one trace: the caller's span, above the client's,
// above the replica's, above the worker's, above the handler's own.
func TestOneTraceForReal(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := func() *sdktrace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	}
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	ofWorker, ofReplica, ofClient := provider(), provider(), provider()
	var w *worker.Worker
	d := realDispatcher(t, redis, prefix, "replica-1", func() {
		var err error
		w, err = worker.New(worker.Config{
			RedisURL: redis.URL(), KeyPrefix: prefix, TracerProvider: ofWorker,
			Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}, StopTimeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("traced", func(ctx context.Context, _ *worker.Job) (any, error) {
			_, span := ofWorker.Tracer("test").Start(ctx, "in the handler")
			span.End()
			return true, nil
		})
		start(t, w)
	})
	s := serve(t, Config{TracerProvider: ofReplica}, d)
	ctx := waittest.Context(t)
	c, err := client.Dial(ctx, s.url, client.Options{Token: "acme", TracerProvider: ofClient})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	callerCtx, caller := ofClient.Tracer("test").Start(ctx, "the caller")
	status, err := c.Run(callerCtx, freeslot.Job{Service: "traced", Payload: json.RawMessage(`1`)})
	if err != nil || status.State != freeslot.StateSucceeded {
		t.Fatalf("%+v, %v; want no error, status.State == freeslot.StateSucceeded", status, err)
	}
	caller.End()
	// The worker ends its span after it has reported the job: wait for that.
	if err := w.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	spans := map[trace.SpanID]tracetest.SpanStub{}
	var leaf tracetest.SpanStub
	for _, span := range exporter.GetSpans() {
		if got, want := span.SpanContext.TraceID(), caller.SpanContext().TraceID(); got != want {
			t.Errorf("span %q is of trace %s, want %s", span.Name, got, want)
		}
		spans[span.SpanContext.SpanID()] = span
		if span.Name == "in the handler" {
			leaf = span
		}
	}
	var kinds []trace.SpanKind
	for span := leaf; span.Name != "the caller"; span = spans[span.Parent.SpanID()] {
		if !span.SpanContext.IsValid() {
			t.Fatalf("the chain from the handler to the caller is broken: %v", exporter.GetSpans())
		}
		kinds = append(kinds, span.SpanKind)
	}
	want := []trace.SpanKind{trace.SpanKindInternal, trace.SpanKindConsumer, trace.SpanKindServer, trace.SpanKindClient}
	if len(kinds) != len(want) {
		t.Fatalf("kinds from the handler up: %v, want %v", kinds, want)
	}
	for i := range want {
		if kinds[i] != want[i] {
			t.Errorf("kinds from the handler up: %v, want %v", kinds, want)
		}
	}
}
