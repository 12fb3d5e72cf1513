package session

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/tracing"
)

// tracer makes one server span of each submit, from its arrival to the answer.
type tracer struct{ tracer trace.Tracer }

// newTracer makes a tracer that records nothing if provider is nil or does not.
func newTracer(provider trace.TracerProvider) tracer {
	if _, off := provider.(noop.TracerProvider); off || provider == nil {
		return tracer{}
	}
	return tracer{tracer: provider.Tracer("github.com/freeslot/freeslot/internal/session")}
}

// start begins the span of a job under the job's own trace context. The job then carries the span's
// context, so that the node's spans become its children.
func (t tracer) start(job *freeslot.Job, tenant string) trace.Span {
	if t.tracer == nil {
		return noop.Span{}
	}
	ctx, span := t.tracer.Start(
		tracing.Parent(context.Background(), job.TraceParent), "freeslot.submit",
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("freeslot.service", job.Service),
			attribute.String("freeslot.tenant", tenant),
		),
	)
	if parent := tracing.TraceParent(ctx); parent != "" {
		job.TraceParent = parent
	}
	return span
}

func endSpan(span trace.Span, jobID string, err error) {
	if !span.IsRecording() {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, string(freeslot.CodeOf(err)))
	} else {
		span.SetAttributes(attribute.String("freeslot.job_id", jobID))
	}
	span.End()
}
