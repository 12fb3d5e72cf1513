package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/logging"
)

const (
	// stopGrace is how long a handler may take to return that its own node has stopped, or whose
	// attempt is not the node's any more. Then the attempt ends without it, and the handler keeps its
	// slots until it returns.
	stopGrace = 30 * time.Second
	// slotPatience is how long an attempt waits for slots that such handlers keep, before
	// the job is handed back. Others free their slots before Redis can give them away.
	slotPatience = 10 * time.Second
)

// attend waits for the handler of an attempt, watches that it tells progress where the job
// asks for that, and gives it up when it does not return although it was told to stop.
func (w *Worker) attend(a *attempt, t *talk, done <-chan returned) returned {
	defer w.progress.end(t)
	limit := time.Duration(a.job.ProgressTimeoutMS) * time.Millisecond
	stalled := time.NewTimer(limit)
	defer stalled.Stop()
	if limit == 0 {
		stalled.Stop()
	}
	var late <-chan time.Time
	told := a.ctx.Done()
	for {
		select {
		case r := <-done:
			return r
		case <-stalled.C:
			if left := limit - w.progress.quiet(t); left > 0 {
				stalled.Reset(left)
				continue
			}
			w.log.Warn("job.stalled", zap.String(logging.FieldJob, a.id.Job), zap.Int("attempt", a.id.N), zap.Duration("progress_timeout", limit))
			w.ledger.stop(a, ErrStalled)
		case <-told:
			told = nil
			stalled.Stop()
			if cause := context.Cause(a.ctx); stoppedHere(cause) || errors.Is(cause, ErrNotOwned) {
				grace := time.NewTimer(w.stopGrace)
				defer grace.Stop()
				late = grace.C
			}
		case <-late:
			return w.leaveStuck(a, done)
		case <-w.abandon:
			return w.leaveStuck(a, done)
		}
	}
}

// leaveStuck gives up on a handler, unless it has just returned.
func (w *Worker) leaveStuck(a *attempt, done <-chan returned) returned {
	slots := a.job.SlotCount()
	w.withhold(slots) // first, or else a handler that returns now gives back what nobody has noted
	if !a.left.CompareAndSwap(false, true) {
		w.withhold(-slots)
		return <-done
	}
	w.log.Error("job.handler_stuck", zap.String(logging.FieldJob, a.id.Job), zap.String("service", a.job.Service))
	return returned{stuck: true, cause: context.Cause(a.ctx)}
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
