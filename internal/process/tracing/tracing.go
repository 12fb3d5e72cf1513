// Package tracing makes the tracer of a process and carries W3C trace contexts through jobs.
package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Config decides where spans go.
type Config struct {
	// Endpoint is the base URL of an OTLP/HTTP collector; empty turns tracing off.
	Endpoint string
	// SampleRatio is the share of traces begun here that is kept, 0 to 1. A trace that a caller
	// began keeps the caller's decision.
	SampleRatio float64
	// Service, Version and Instance describe this process to the collector.
	Service  string
	Version  string
	Instance string
}

// Tracing holds the tracer provider of a process. Spans are sent in the background, in batches. At
// most 2048 wait; more are dropped.
type Tracing struct {
	provider trace.TracerProvider
	close    func(context.Context) error
}

// Open makes the provider. It does not connect to the collector: without one spans are lost, but
// never a job.
func Open(ctx context.Context, cfg Config) (*Tracing, error) {
	if cfg.Endpoint == "" {
		return &Tracing{provider: noop.NewTracerProvider(), close: func(context.Context) error { return nil }}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(tracesURL(cfg.Endpoint)))
	if err != nil {
		return nil, fmt.Errorf("open trace exporter: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.SampleRatio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", cfg.Service),
			attribute.String("service.version", cfg.Version),
			attribute.String("service.instance.id", cfg.Instance),
		)),
	)
	return &Tracing{provider: provider, close: provider.Shutdown}, nil
}

// Provider returns the provider, which is never nil.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Close sends the remaining spans and stops. It gives up when ctx ends.
func (t *Tracing) Close(ctx context.Context) error { return t.close(ctx) }

// Parent returns ctx with the remote parent of a W3C traceparent; ctx itself if that is empty or
// invalid.
func Parent(ctx context.Context, traceParent string) context.Context {
	if traceParent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceParent})
}

// TraceID returns the id of the trace of a traceparent; "" if it has none.
func TraceID(traceParent string) string {
	span := trace.SpanContextFromContext(Parent(context.Background(), traceParent))
	if !span.HasTraceID() {
		return ""
	}
	return span.TraceID().String()
}

// TraceParent returns the W3C traceparent of ctx's span; empty if there is none.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}
