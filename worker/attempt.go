package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/retry"
)

// maxErrorBytes bounds the message of a failed job: it is kept in Redis.
const maxErrorBytes = 8 << 10

// returned tells how a handler ended.
type returned struct {
	result json.RawMessage
	err    error
	// failure is set if the handler panicked or ended its goroutine, and if its result cannot be
	// the job's.
	failure *freeslot.JobError
	// cause is the cause of the context if that had ended when the handler returned; otherwise nil.
	cause error
	// stuck is true if the handler has not returned and was given up.
	stuck bool
}

// attempt takes one attempt from its arrival to its handler, which it calls in its own goroutine,
// and on to its end. watch ends an attempt whose handler does not return.
func (w *Worker) attempt(a *attempt) {
	growStack()
	if !w.readSpec(a) || w.slots.Acquire(a.ctx, a.job.SlotCount()) != nil {
		w.end(a, w.unbegun(a))
		return
	}
	fn, left := w.handler(a.job.Service)
	a.begun = time.Now()
	if a.moot = left; left || !w.ledger.begin(a) {
		w.slots.Release(a.job.SlotCount())
		w.end(a, w.unbegun(a))
		return
	}
	w.call(a, fn)
}

// conclude ends an attempt whose handler was called. Only the winner of a.left calls it.
func (w *Worker) conclude(a *attempt, span trace.Span, r returned) {
	comp := w.completionOf(a, r)
	if comp != nil {
		if comp.Error != nil {
			span.SetStatus(codes.Error, comp.Error.Code)
		}
		span.SetAttributes(attribute.String("freeslot.state", string(comp.State)))
	}
	span.End()
	w.end(a, comp)
}

// end reports how an attempt ended, unless comp is nil, and lets go of it.
func (w *Worker) end(a *attempt, comp *cell.Completion) {
	defer w.attempts.Done()
	if comp != nil {
		if comp.Next == cell.HandBack {
			w.awaitFleet(a)
		}
		w.report(comp, a)
	}
	if w.ledger.remove(a) {
		w.requestBeat()
	}
}

// readSpec reads the job of an attempt that came without it. It tries until it succeeds or the
// attempt is cancelled.
func (w *Worker) readSpec(a *attempt) bool {
	for pauses := retry.Pauses(); a.job == nil; {
		job, tenant, err := w.store.Spec(a.ctx, a.id.Job)
		switch {
		case err == nil:
			a.job, a.tenant = job, tenant
		case refusedSpec(err):
			// The record is gone, or never was, so no client waits for an end. If the node still
			// owns the attempt, a later heartbeat offers it again.
			w.log.Warn("job.record_missing", zap.String(logging.FieldJob, a.id.Job), zap.Error(err))
			w.ledger.disown(a.id)
			return false
		case !retry.Wait(a.ctx, pauses.NextBackOff()):
			return false
		}
	}
	return true
}

// refusedSpec reports whether another request for the job would get the same answer.
func refusedSpec(err error) bool {
	code := freeslot.CodeOf(err)
	return code == freeslot.CodeNotFound || code == freeslot.CodeInvalidArgument
}

// unbegun returns the completion of an attempt whose handler was never called; nil for none.
func (w *Worker) unbegun(a *attempt) *cell.Completion {
	asked, disowned := w.ledger.finish(a)
	comp := w.completion(a)
	switch {
	case disowned:
		w.ended(a, outcomeDropped)
		return nil
	case asked:
		comp.State = freeslot.StateCancelled
	case a.moot:
		handBack(comp, "the node runs no service "+a.job.Service+" any more")
	case a.ctx.Err() == nil:
		handBack(comp, "the node's slots did not come free in time")
	case errors.Is(context.Cause(a.ctx), ErrLeaseLost):
		handBack(comp, "the node was cut off from Redis before the job began")
	default:
		handBack(comp, "the node stopped before the job began"+reasonOf(context.Cause(a.ctx)))
	}
	return comp
}

// reasonOf returns the reason of Leave in a cause, after a colon; "" if there is none.
func reasonOf(cause error) string {
	reason, ok := strings.CutPrefix(cause.Error(), ErrStopping.Error())
	if !ok {
		return ""
	}
	return reason
}

// completionOf decides what the handler's return means for the job; nil means nothing.
func (w *Worker) completionOf(a *attempt, r returned) *cell.Completion {
	asked, disowned := w.ledger.finish(a)
	comp := w.completion(a)
	switch {
	case disowned:
		w.ended(a, outcomeDropped)
		return nil
	case r.stuck && stoppedHere(r.cause):
		w.failStopped(comp, a, r)
	case r.stuck:
		handBack(comp, "the node stopped while the job ran, and its handler did not return")
	case r.failure != nil:
		comp.Error = r.failure
	case r.err == nil:
		comp.State, comp.Result = freeslot.StateSucceeded, r.result
	case stoppedHere(r.cause):
		w.failStopped(comp, a, r)
	case asked && r.cause != nil:
		comp.State = freeslot.StateCancelled
	case errors.Is(r.cause, ErrStopping):
		reason := reasonOf(r.cause)
		if errors.Is(r.err, ErrStopping) { // the error has it
			reason = ""
		}
		handBack(comp, bounded("the node stopped while the job ran"+reason+": "+r.err.Error()))
	default:
		comp.Error = jobError(r.err)
		comp.Next, comp.RetryDelay = nextTry(r.err, a.id.N)
	}
	return comp
}

// handBack makes the job wait again, for another node. The job has not failed: this node is
// stopping, or no longer runs its service.
func handBack(comp *cell.Completion, message string) {
	comp.Next = cell.HandBack
	comp.Error = &freeslot.JobError{Code: freeslot.JobErrorInterrupted, Message: message}
}

// awaitFleet waits until Redis knows that the node takes no more jobs, or none for this service.
// Redis would otherwise give the job's slot to a waiting job, perhaps to the same one. Without an
// answer it goes on after drainingTimeout: the job may then come here and be handed back again. A
// job that found no slot does not wait here, because the node goes on taking jobs.
func (w *Worker) awaitFleet(a *attempt) {
	if !a.moot && a.ctx.Err() == nil {
		return
	}
	var known <-chan struct{}
	if a.moot {
		known = w.profile.known()
	}
	select {
	case <-known:
	case <-w.draining:
	case <-w.failed:
	case <-w.life.Done():
	case <-time.After(drainingTimeout):
	}
}

func (w *Worker) completion(a *attempt) *cell.Completion {
	return &cell.Completion{Node: w.cfg.Node.ID, Epoch: w.epoch, Attempt: a.id, State: freeslot.StateFailed}
}

// call runs the handler, and ends the attempt unless its watcher has given it up meanwhile. It
// releases the slots when the handler returns.
func (w *Worker) call(a *attempt, fn HandlerFunc) {
	ctx, span := w.startSpan(a)
	job := &Job{
		ID: a.id.Job, Tenant: a.tenant, Service: a.job.Service, Attempt: a.id.N,
		Payload: a.job.Payload, Requirement: a.job.Requirement, Slots: a.job.SlotCount(),
	}
	reports := w.progress.begin(a.id)
	job.report = func(value json.RawMessage) { w.progress.report(reports, value) }
	stopWatching := w.watch(a, reports, span)
	w.handling.Add(1)
	w.metrics.running.Inc()
	ended := func(r returned) {
		r.cause = context.Cause(ctx)
		processmetrics.Observe(
			w.metrics.handlerSeconds.WithLabelValues(w.serviceLabel(job.Service)), time.Since(a.begun).Seconds(),
			a.job.TraceParent,
		)
		w.metrics.running.Dec()
		w.handling.Add(-1)
		w.slots.Release(job.Slots)
		stopWatching()
		if !a.left.CompareAndSwap(false, true) {
			w.withhold(-job.Slots)
			return
		}
		w.conclude(a, span, r)
	}
	ok := false
	defer func() {
		if ok {
			return
		}
		// Without a value the handler has ended its goroutine (runtime.Goexit, as t.FailNow does).
		// The goroutine goes on while this function runs.
		ended(returned{failure: w.panicked(job, recover())})
	}()
	r := w.handle(ctx, job, fn)
	ok = true
	ended(r)
}

// handle runs the handler; fn is nil for a service without one.
func (w *Worker) handle(ctx context.Context, job *Job, fn HandlerFunc) (r returned) {
	if fn == nil {
		r.err = &freeslot.JobError{
			Code: freeslot.JobErrorNoHandler, Message: "node " + w.cfg.Node.ID + " runs no service " + job.Service,
		}
		return r
	}
	var result any
	if result, r.err = fn(ctx, job); r.err == nil {
		r.result, r.failure = w.encode(result) // here, because a MarshalJSON may panic
	}
	return r
}

func (w *Worker) panicked(job *Job, value any) *freeslot.JobError {
	message := "the handler ended its goroutine"
	if value != nil {
		message = fmt.Sprint(value)
	}
	w.log.Error("job.handler_panicked", zap.String(logging.FieldJob, job.ID), zap.String("service", job.Service),
		zap.String("panic", message), zap.ByteString("stack", debug.Stack()))
	return &freeslot.JobError{Code: freeslot.JobErrorPanic, Message: bounded(message)}
}

// encode turns a handler's result into the job's result.
func (w *Worker) encode(result any) (json.RawMessage, *freeslot.JobError) {
	raw, ok := result.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(result); err != nil {
			return nil, &freeslot.JobError{
				Code: freeslot.JobErrorHandler, Message: bounded("the handler's result cannot be encoded: " + err.Error()),
			}
		}
	}
	if len(raw) > w.cfg.MaxResultBytes {
		return nil, &freeslot.JobError{
			Code:    freeslot.JobErrorResultTooLarge,
			Message: fmt.Sprintf("the result has %d bytes, the node's limit is %d", len(raw), w.cfg.MaxResultBytes),
		}
	}
	if invalid, ok := errors.AsType[*freeslot.Error](freeslot.ValidateJSON("result", raw)); ok {
		return nil, &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "the handler's " + invalid.Message}
	}
	return raw, nil
}

// jobError keeps a handler's own code, if it is a valid name.
func jobError(err error) *freeslot.JobError {
	if chosen, ok := errors.AsType[*freeslot.JobError](err); ok && chosen != nil &&
		freeslot.ValidateName("code", chosen.Code) == nil {
		return &freeslot.JobError{Code: chosen.Code, Message: bounded(chosen.Message)}
	}
	return &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: bounded(err.Error())}
}

// bounded cuts a message to maxErrorBytes and makes it valid UTF-8.
func bounded(s string) string { return truncate(s, maxErrorBytes) }

// truncate cuts a text to limit bytes and makes it valid UTF-8.
func truncate(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// startSpan continues the submitter's trace, if the job has one.
func (w *Worker) startSpan(a *attempt) (context.Context, trace.Span) {
	ctx := a.ctx
	if _, off := w.cfg.TracerProvider.(noop.TracerProvider); off && a.job.TraceParent == "" {
		return ctx, noop.Span{}
	}
	if a.job.TraceParent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": a.job.TraceParent})
	}
	return w.tracer.Start(ctx, "run "+a.job.Service, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("freeslot.job_id", a.id.Job),
		attribute.Int("freeslot.attempt", a.id.N),
		attribute.String("freeslot.service", a.job.Service),
		attribute.String("freeslot.tenant", a.tenant),
		attribute.String("freeslot.node", w.cfg.Node.ID),
	))
}
