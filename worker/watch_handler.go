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

const (
	// stopGrace is how long a handler may take to return, once it was told to stop, that its own node has
	// stopped, or whose attempt is not the node's any more. Then the attempt ends without it, and the handler
	// keeps its slots until it returns.
	stopGrace = 30 * time.Second
	// slotPatience is how long an attempt waits for slots that such handlers keep, before
	// the job is handed back. Others free their slots before Redis can give them away.
	slotPatience = 10 * time.Second
)

// attend watches a handler: that it tells progress where the job asks for that, and that it returns
// when it was told to stop, or else it is given up. Whoever calls the handler calls the returned
// function when it has returned. Most handlers return untold, so no goroutine waits for that.
func (w *Worker) attend(a *attempt, t *talk, span trace.Span) (ended func()) {
	done := make(chan struct{})
	w.attempts.Add(1)
	told := context.AfterFunc(a.ctx, func() {
		defer w.attempts.Done()
		w.attendStop(a, t, span, done)
	})
	if limit := time.Duration(a.job.ProgressTimeoutMS) * time.Millisecond; limit > 0 {
		w.attempts.Go(func() { w.attendProgress(a, t, limit, done) })
	}
	return func() {
		if told() {
			w.attempts.Done()
		}
		close(done)
		w.progress.end(t)
	}
}

// attendProgress stops a handler that has told nothing for limit.
func (w *Worker) attendProgress(a *attempt, t *talk, limit time.Duration, done <-chan struct{}) {
	stalled := time.NewTimer(limit)
	defer stalled.Stop()
	for {
		select {
		case <-done:
			return
		case <-a.ctx.Done():
			return
		case <-stalled.C:
		}
		left := limit - w.progress.quiet(t)
		if left <= 0 {
			w.log.Warn("job.stalled", zap.String(logging.FieldJob, a.id.Job), zap.Int("attempt", a.id.N), zap.Duration("progress_timeout", limit))
			w.ledger.stop(a, ErrStalled)
			return
		}
		stalled.Reset(left)
	}
}

// attendStop waits for a handler that was told to stop, and gives it up when it does not return.
func (w *Worker) attendStop(a *attempt, t *talk, span trace.Span, done <-chan struct{}) {
	if !w.awaitEnd(a, done) {
		return
	}
	slots := a.job.SlotCount()
	w.withhold(slots) // first, or else a handler that returns now gives back what nobody has noted
	if !a.left.CompareAndSwap(false, true) {
		w.withhold(-slots) // it has just returned
		return
	}
	w.log.Error("job.handler_stuck", zap.String(logging.FieldJob, a.id.Job), zap.String("service", a.job.Service))
	w.progress.end(t)
	w.returned(a, span, returned{stuck: true, cause: context.Cause(a.ctx)})
}

// awaitEnd returns false when the handler has returned, true when it is to be given up.
func (w *Worker) awaitEnd(a *attempt, done <-chan struct{}) bool {
	grace := time.NewTimer(w.stopGrace) // of the word to stop, which it has just got
	defer grace.Stop()
	var late <-chan time.Time
	lost := w.ledger.lost(a)
	switch cause := context.Cause(a.ctx); {
	case stoppedHere(cause):
		late, lost = grace.C, nil
	case errors.Is(cause, ErrStopping):
		lost = nil // the stop has its own limit, which abandon tells
	}
	for {
		select {
		case <-done:
			return false
		case <-lost: // Redis gives its slots to others from now on
			lost = nil
			select {
			case <-w.failed: // not to this process, which ends, and has a limit for that
			default:
				late = grace.C
			}
		case <-late:
			return true
		case <-w.abandon:
			return true
		}
	}
}

// withhold notes that stuck handlers keep so many slots more. The fleet is told with the next
// heartbeat, or else the node would seem free and draw jobs that it can only hand back.
func (w *Worker) withhold(slots int) {
	w.withheld.Add(int64(slots))
	w.requestBeat()
}

// stoppedHere reports whether a context ended because the node itself stopped the attempt,
// which is then a failure that another attempt may mend.
func stoppedHere(cause error) bool {
	return errors.Is(cause, ErrStalled) || errors.Is(cause, ErrLeaseLost)
}

// failStopped makes the completion that of an attempt that its own node has stopped.
func (w *Worker) failStopped(comp *cell.Completion, a *attempt, r returned) {
	failure := &freeslot.JobError{
		Code:    freeslot.JobErrorLeaseLost,
		Message: fmt.Sprintf("node %s could not reach Redis for %s", w.cfg.Node.ID, w.limit),
	}
	if errors.Is(r.cause, ErrStalled) {
		failure = &freeslot.JobError{
			Code:    freeslot.JobErrorStalled,
			Message: fmt.Sprintf("the handler told no progress for %s", time.Duration(a.job.ProgressTimeoutMS)*time.Millisecond),
		}
	}
	switch {
	case r.stuck:
		failure.Message += ", and has not returned since"
	case !errors.Is(r.err, r.cause) && !errors.Is(r.err, context.Canceled):
		failure.Message = bounded(failure.Message + ": " + r.err.Error())
	}
	comp.Error = failure
	comp.Again, comp.RetryDelay = again(Retryable(failure), a.id.N)
}
