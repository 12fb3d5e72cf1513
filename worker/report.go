package worker

import (
	"errors"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/retry"
)

// quietTries is the number of tries of a report before that is logged. An outage of some seconds is
// logged by the heartbeats, once and not for every job.
const quietTries = 10

// report tells Redis how the attempt ended. It repeats that until Redis acknowledges or refuses the
// report, or the worker's life ends. Repeating is harmless: the first report wins.
func (w *Worker) report(comp *cell.Completion, a *attempt) {
	pauses := retry.Pauses()
	for try := 1; ; try++ {
		outcome, err := w.complete(*comp)
		switch {
		case err == nil:
			if try > 1 && outcome != cell.Completed {
				w.requestBeat() // for jobs that were in the lost answer
			}
			ended := outcomeOf(comp)
			if outcome == cell.CompletedStale {
				ended = outcomeStale
			}
			w.ended(a, ended)
			return
		case errors.Is(err, cell.ErrSuperseded):
			w.fail(ErrSuperseded)
			w.ended(a, outcomeStale)
			return
		case errors.Is(err, cell.ErrUnknownNode):
			// The node's attempts are gone with it; the heartbeat registers it again.
			w.requestBeat()
			w.ended(a, outcomeStale)
			return
		case refusedForGood(err) && comp.State == freeslot.StateSucceeded:
			comp.State, comp.Result = freeslot.StateFailed, nil
			comp.Error = &freeslot.JobError{
				Code: freeslot.JobErrorHandler, Message: bounded("the result was refused: " + err.Error()),
			}
		}
		w.metrics.completionRetries.Inc()
		if try == quietTries {
			w.log.Warn("job.report_unanswered", zap.String(logging.FieldJob, comp.Attempt.Job), zap.Error(err))
		}
		w.log.Debug("job.report_retried", zap.String(logging.FieldJob, comp.Attempt.Job), zap.Error(err))
		w.requestBeat()
		if !retry.Wait(w.life, pauses.NextBackOff()) {
			w.log.Warn("job.report_abandoned", zap.String(logging.FieldJob, comp.Attempt.Job), zap.Error(err))
			w.ended(a, outcomeDropped)
			return
		}
	}
}

func (w *Worker) complete(comp cell.Completion) (cell.CompletionOutcome, error) {
	comp.Begun = w.receiveAll
	number := w.ledger.report()
	defer w.ledger.reported(number)
	// The call has a deadline of its own, which also bounds the wait for its turn.
	return w.store.Complete(w.life, comp)
}

// receiveAll starts the attempts that the answer to a report brought.
func (w *Worker) receiveAll(begun []cell.Dispatch) {
	for i := range begun {
		w.receive(&begun[i])
	}
}

// refusedForGood reports whether an error blames the result, so that a repetition would get the
// same error.
func refusedForGood(err error) bool {
	code := freeslot.CodeOf(err)
	return code == freeslot.CodeInvalidArgument || code == freeslot.CodePayloadTooLarge
}
