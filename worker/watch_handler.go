package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
)

// stopGrace is the time within which a stopped handler must return if its own node has stopped it,
// or no longer owns the attempt. Then the attempt ends without the handler, which keeps its slots
// until it returns.
const stopGrace = 30 * time.Second

// watch stops a handler that reports no progress, if the job asks for that, and gives up a handler
// that does not return after it was stopped. The caller of the handler calls the returned function
// when the handler has returned.
func (w *Worker) watch(a *attempt, reports *attemptProgress, span trace.Span) (stopWatching func()) {
	done := make(chan struct{})
	w.attempts.Add(1)
	unstarted := context.AfterFunc(a.ctx, func() {
		defer w.attempts.Done()
		if w.awaitStuck(a, done) {
			w.giveUpHandler(a, reports, span)
		}
	})
	if a.job.ProgressTimeoutMS > 0 {
		w.attempts.Go(func() { w.stopQuiet(a, reports, done) })
	}
	return func() {
		close(done)
		if unstarted() {
			w.attempts.Done()
		}
		w.progress.end(reports)
	}
}

// stopQuiet stops a handler that has reported no progress for too long. It ends when the handler
// is stopped or has returned.
func (w *Worker) stopQuiet(a *attempt, reports *attemptProgress, done <-chan struct{}) {
	limit := time.Duration(a.job.ProgressTimeoutMS) * time.Millisecond
	for left := limit; left > 0; left = limit - w.progress.quiet(reports) {
		select {
		case <-done:
			return
		case <-a.ctx.Done():
			return
		case <-time.After(left):
		}
	}
	w.log.Warn(
		"job.stalled", zap.String(logging.FieldJob, a.id.Job), zap.Int("attempt", a.id.N),
		zap.Duration("progress_timeout", limit),
	)
	w.ledger.stop(a, ErrStalled)
}

// awaitStuck returns true if a stopped handler has not returned in time, false if it has returned.
func (w *Worker) awaitStuck(a *attempt, done <-chan struct{}) bool {
	grace := time.After(w.stopGrace) // counts from the stop, which has just come
	var late <-chan time.Time
	lost := w.ledger.lost(a)
	switch cause := context.Cause(a.ctx); {
	case stoppedHere(cause):
		late, lost = grace, nil
	case errors.Is(cause, ErrStopping):
		lost = nil // the node's stop has its own limit: it closes abandon
	}
	for {
		select {
		case <-done:
			return false
		case <-lost: // Redis gives its slots to other jobs from now on
			lost = nil
			select {
			case <-w.failed: // the node belongs to another process, and the end of this process has its own limit
			default:
				late = grace
			}
		case <-late:
			return true
		case <-w.abandon:
			return true
		}
	}
}

// giveUpHandler ends an attempt whose handler does not return.
func (w *Worker) giveUpHandler(a *attempt, reports *attemptProgress, span trace.Span) {
	slots := a.job.SlotCount()
	w.withhold(slots) // before the swap: a handler that returns from then on gives these slots back
	if !a.left.CompareAndSwap(false, true) {
		w.withhold(-slots) // it has just returned
		return
	}
	w.log.Error("job.handler_stuck", zap.String(logging.FieldJob, a.id.Job), zap.String("service", a.job.Service))
	w.progress.end(reports)
	w.conclude(a, span, returned{stuck: true, cause: context.Cause(a.ctx)})
}

// withhold records that stuck handlers keep that many slots more. The next heartbeat offers fewer
// slots: the node would otherwise seem free, and get jobs that it can only hand back.
func (w *Worker) withhold(slots int) {
	w.withheld.Add(int64(slots))
	w.requestBeat()
}

// stoppedHere reports whether the node itself stopped the attempt. Another attempt may mend such a
// failure.
func stoppedHere(cause error) bool {
	return errors.Is(cause, ErrStalled) || errors.Is(cause, ErrLeaseLost)
}

// failStopped completes an attempt that its own node has stopped.
func (w *Worker) failStopped(comp *cell.Completion, a *attempt, r returned) {
	failure := &freeslot.JobError{
		Code:    freeslot.JobErrorLeaseLost,
		Message: fmt.Sprintf("node %s could not reach Redis for %s", w.cfg.Node.ID, w.limit),
	}
	if errors.Is(r.cause, ErrStalled) {
		failure = &freeslot.JobError{
			Code: freeslot.JobErrorStalled,
			Message: fmt.Sprintf(
				"the handler reported no progress for %s", time.Duration(a.job.ProgressTimeoutMS)*time.Millisecond,
			),
		}
	}
	switch {
	case r.stuck:
		failure.Message += ", and has not returned since"
	case !errors.Is(r.err, r.cause) && !errors.Is(r.err, context.Canceled):
		failure.Message = bounded(failure.Message + ": " + r.err.Error())
	}
	comp.Error = failure
	comp.Next, comp.RetryDelay = nextTry(Retryable(failure), a.id.N)
}
