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
)

// specTimeout is longer than callTimeout, as a payload may take long to come, and begins anew when it is cut off. Heartbeats
// notice a connection that is dead.
const specTimeout = 4 * callTimeout

// maxErrorBytes bounds the message of a failed job: it is kept in Redis.
const maxErrorBytes = 8 << 10

// returned is what a handler left behind.
type returned struct {
	result json.RawMessage
	// refused says why the result cannot be the job's.
	refused *freeslot.JobError
	err     error
	// panicked is set when the handler panicked or ended its goroutine.
	panicked *freeslot.JobError
	// cause is why the context had been cancelled when the handler returned.
	cause error
	// stuck is true when the handler has not returned and is not waited for any more.
	stuck bool
}

// attempt takes one attempt from its arrival to its handler, which it calls in its own goroutine, and
// on to its end, unless the handler is given up before it returns: see attend.
func (w *Worker) attempt(a *attempt) {
	if !w.readSpec(a) {
		w.settle(a, w.unbegun(a))
		return
	}
	n := a.job.SlotCount()
	if !w.acquire(a.ctx, n) {
		w.settle(a, w.unbegun(a))
		return
	}
	fn, left := w.handler(a.job.Service)
	if a.moot = left; left || !w.ledger.begin(a) {
		w.slots.release(n)
		w.settle(a, w.unbegun(a))
		return
	}
	w.call(a, fn)
}

// returned ends an attempt whose handler was called. Whoever wins a.left calls it, once.
func (w *Worker) returned(a *attempt, span trace.Span, r returned) {
	comp := w.conclude(a, r)
	if comp != nil && span.IsRecording() {
		if comp.Error != nil {
			span.SetStatus(codes.Error, comp.Error.Code)
		}
		span.SetAttributes(attribute.String("freeslot.state", string(comp.State)))
	}
	span.End()
	w.settle(a, comp)
}

// settle reports the end of an attempt, nil where there is nothing to report, and lets go of it.
func (w *Worker) settle(a *attempt, comp *cell.Completion) {
	defer w.attempts.Done()
	if comp != nil {
		if comp.Again == cell.HandBack {
			w.awaitFleet(a)
		}
		w.report(comp, a)
	}
	if w.ledger.settle(a) {
		w.requestBeat()
	}
}

// acquire takes slots for a handler. It gives up when ctx ends, and after slotPatience: then
// handlers keep them that do not return, and the job may find a better node.
func (w *Worker) acquire(ctx context.Context, n int) bool {
	if ctx.Err() == nil && w.slots.try(n) {
		return true // as nearly always: without a timer
	}
	ctx, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	return w.slots.acquire(ctx, n) == nil
}

// readSpec reads the job of an attempt that came without it, until it is there or
// the attempt is cancelled.
func (w *Worker) readSpec(a *attempt) bool {
	for pauses := retryPauses(); a.job == nil; {
		ctx, cancel := context.WithTimeout(a.ctx, specTimeout)
		job, tenant, err := w.store.Spec(ctx, a.id.Job)
		cancel()
		switch {
		case err == nil:
			a.job, a.tenant = job, tenant
		case refusedSpec(err):
			// The record is gone, or never was if no job can have this id, so nobody
			// waits for an end. If the node still owns the attempt all the same, a later
			// heartbeat offers it again.
			w.log.Warn("job.record_missing", zap.String(logging.FieldJob, a.id.Job), zap.Error(err))
			w.ledger.disown(a.id)
			return false
		case !pause(a.ctx, pauses.NextBackOff()):
			return false
		}
	}
	return true
}

// refusedSpec tells that asking for the job again would be answered the same.
func refusedSpec(err error) bool {
	code := freeslot.CodeOf(err)
	return code == freeslot.CodeNotFound || code == freeslot.CodeInvalidArgument
}

// unbegun is the end of an attempt whose handler was never called; nil for none.
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
	default:
		handBack(comp, whyUnbegun(context.Cause(a.ctx)))
	}
	return comp
}

func whyUnbegun(cause error) string {
	switch {
	case cause == nil:
		return "the node's slots did not come free in time"
	case errors.Is(cause, ErrLeaseLost):
		return "the node was cut off from Redis before the job began"
	default:
		return "the node stopped before the job began"
	}
}

// conclude decides what the handler's return means for the job; nil for nothing.
func (w *Worker) conclude(a *attempt, r returned) *cell.Completion {
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
	case r.panicked != nil:
		comp.Error = r.panicked
	case r.refused != nil:
		comp.Error = r.refused
	case r.err == nil:
		comp.State, comp.Result = freeslot.StateSucceeded, r.result
	case stoppedHere(r.cause):
		w.failStopped(comp, a, r)
	case asked && r.cause != nil:
		comp.State = freeslot.StateCancelled
	case errors.Is(r.cause, ErrStopping):
		handBack(comp, bounded("the node stopped while the job ran: "+r.err.Error()))
	default:
		comp.Error = jobError(r.err)
		comp.Again, comp.RetryDelay = again(r.err, a.id.N)
	}
	return comp
}

// handBack makes the job wait again, for another node: that this one stops, or does not
// run its service any more, is no failure of the job.
func handBack(comp *cell.Completion, message string) {
	comp.Again = cell.HandBack
	comp.Error = &freeslot.JobError{Code: freeslot.JobErrorInterrupted, Message: message}
}

// awaitFleet waits until Redis knows that the node takes no more jobs, or none of this
// service: the slot that a job leaves would otherwise be given to a job that waits, and that
// may be the same one. Without an answer it goes on after drainingTimeout: such a job is
// handed back again. One for which there was no slot does not wait: the node goes on taking jobs.
func (w *Worker) awaitFleet(a *attempt) {
	if !a.moot && a.ctx.Err() == nil {
		return
	}
	timer := time.NewTimer(drainingTimeout)
	defer timer.Stop()
	for {
		var news <-chan struct{}
		if a.moot {
			pending, next := w.profile.pending()
			if !pending {
				return
			}
			news = next
		}
		select {
		case <-news:
			continue
		case <-w.draining:
		case <-w.failed:
		case <-w.life.Done():
		case <-timer.C:
		}
		return
	}
}

func (w *Worker) completion(a *attempt) *cell.Completion {
	return &cell.Completion{Node: w.cfg.Node.ID, Epoch: w.epoch, Attempt: a.id, State: freeslot.StateFailed}
}

// call runs the handler, and ends the attempt, unless somebody has given it up meanwhile. The
// slots are released when the handler returns.
func (w *Worker) call(a *attempt, fn HandlerFunc) {
	ctx, span := w.startSpan(a)
	job := &Job{
		ID: a.id.Job, Tenant: a.tenant, Service: a.job.Service, Attempt: a.id.N,
		Payload: a.job.Payload, Requirement: a.job.Requirement, Slots: a.job.SlotCount(),
	}
	told := w.progress.begin(a.id)
	job.tell = func(value json.RawMessage) { w.progress.tell(told, value) }
	attended := w.attend(a, told, span)
	w.handling.Add(1)
	w.metrics.running.Inc()
	begun := time.Now()
	ended := func(r returned) {
		r.cause = context.Cause(ctx)
		w.metrics.handlerSeconds.WithLabelValues(w.serviceLabel(job.Service)).Observe(time.Since(begun).Seconds())
		w.metrics.running.Dec()
		w.handling.Add(-1)
		w.slots.release(job.Slots)
		attended()
		if !a.left.CompareAndSwap(false, true) {
			w.withhold(-job.Slots)
			return
		}
		w.returned(a, span, r)
	}
	ok := false
	defer func() {
		if ok {
			return
		}
		// Without a value the handler has ended its goroutine (runtime.Goexit, as t.FailNow does), which
		// goes on as long as this function.
		ended(returned{panicked: w.panicked(job, recover())})
	}()
	r := w.handle(ctx, job, fn)
	ok = true
	ended(r)
}

// handle runs the handler; nil is of a service that has none.
func (w *Worker) handle(ctx context.Context, job *Job, fn HandlerFunc) (r returned) {
	if fn == nil {
		r.err = &freeslot.JobError{Code: freeslot.JobErrorNoHandler, Message: "node " + w.cfg.Node.ID + " runs no service " + job.Service}
		return r
	}
	var result any
	if result, r.err = fn(ctx, job); r.err == nil {
		r.result, r.refused = w.encode(result) // here, for a MarshalJSON that panics
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

// encode makes a handler's result the job's.
func (w *Worker) encode(result any) (json.RawMessage, *freeslot.JobError) {
	raw, ok := result.(json.RawMessage)
	if ok && len(raw) <= w.cfg.MaxResultBytes && len(raw) > 0 && !json.Valid(raw) {
		return nil, &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "the handler's result is not valid JSON"}
	}
	if !ok {
		var err error
		if raw, err = json.Marshal(result); err != nil {
			return nil, &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: bounded("the handler's result cannot be encoded: " + err.Error())}
		}
	}
	if len(raw) > w.cfg.MaxResultBytes {
		return nil, &freeslot.JobError{
			Code:    freeslot.JobErrorResultTooLarge,
			Message: fmt.Sprintf("the result has %d bytes, the node's limit is %d", len(raw), w.cfg.MaxResultBytes),
		}
	}
	// Neither json.Valid nor json.Marshal of what contains a RawMessage refuses it,
	// and no client could take it: WebSocket text is UTF-8.
	if !utf8.Valid(raw) {
		return nil, &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: "the handler's result is not valid UTF-8, as JSON must be"}
	}
	return raw, nil
}

// jobError keeps the code that a handler chose, if it is one that can be shown.
func jobError(err error) *freeslot.JobError {
	var chosen *freeslot.JobError
	if errors.As(err, &chosen) && chosen != nil && freeslot.ValidateName("code", chosen.Code) == nil {
		return &freeslot.JobError{Code: chosen.Code, Message: bounded(chosen.Message)}
	}
	return &freeslot.JobError{Code: freeslot.JobErrorHandler, Message: bounded(err.Error())}
}

// bounded cuts a message to maxErrorBytes and makes it valid UTF-8.
func bounded(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxErrorBytes {
		return s
	}
	cut := maxErrorBytes
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// startSpan continues the submitter's trace, if the job has one.
func (w *Worker) startSpan(a *attempt) (context.Context, trace.Span) {
	ctx := a.ctx
	if _, off := w.cfg.TracerProvider.(noop.TracerProvider); off && a.job.TraceParent == "" {
		return ctx, noop.Span{} // nobody reads what it would cost to say
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
