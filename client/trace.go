package client

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/freeslot/freeslot"
)

// tracer makes a client span of each job. Its zero value makes none.
type tracer struct{ tracer trace.Tracer }

func newTracer(provider trace.TracerProvider) tracer {
	if _, off := provider.(noop.TracerProvider); off || provider == nil {
		return tracer{}
	}
	return tracer{tracer: provider.Tracer("github.com/freeslot/freeslot/client")}
}

// jobSpan spans a job from its submit to its result. The zero value is none.
type jobSpan struct{ span trace.Span }

const traceParentKey = "traceparent"

// start begins the span of a job and puts its context into the job. The parent is ctx's span or,
// without one, the trace context that the job came with.
func (t tracer) start(ctx context.Context, job *freeslot.Job) jobSpan {
	if t.tracer == nil {
		return jobSpan{}
	}
	if !trace.SpanContextFromContext(ctx).IsValid() && job.TraceParent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceParentKey: job.TraceParent})
	}
	ctx, span := t.tracer.Start(ctx, "freeslot.job",
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("freeslot.service", job.Service)))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if parent := carrier[traceParentKey]; parent != "" {
		job.TraceParent = parent
	}
	return jobSpan{span}
}

func (s jobSpan) assigned(node string, attempt int) {
	if s.span != nil {
		s.span.AddEvent("assigned", trace.WithAttributes(
			attribute.String("freeslot.node", node), attribute.Int("freeslot.attempt", attempt)))
	}
}

func (s jobSpan) end(jobID string, status freeslot.JobStatus, err error) {
	if s.span == nil {
		return
	}
	if jobID != "" {
		s.span.SetAttributes(attribute.String("freeslot.job_id", jobID))
	}
	switch {
	case err != nil:
		s.span.SetStatus(codes.Error, err.Error())
	case status.Error != nil:
		s.span.SetStatus(codes.Error, status.Error.Code)
	case status.State == freeslot.StateExpired || status.State == freeslot.StateDead:
		s.span.SetStatus(codes.Error, string(status.State))
	}
	if status.State != "" {
		s.span.SetAttributes(attribute.String("freeslot.state", string(status.State)))
	}
	s.span.End()
}
