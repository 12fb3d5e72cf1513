package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
)

// maxReasonBytes bounds the reason of Leave: heartbeats and the errors of jobs carry it.
const maxReasonBytes = 512

// leaving holds the arguments of Leave.
type leaving struct {
	reason string // "" if nothing but a stop is the reason
	limit  time.Duration
}

func (l *leaving) fields() []zap.Field {
	if l.reason == "" {
		return nil
	}
	return []zap.Field{zap.String(logging.FieldReason, l.reason)}
}

// cause returns the cause with which attempts are stopped.
func (l *leaving) cause() error {
	if l.reason == "" {
		return ErrStopping
	}
	return fmt.Errorf("%w: %s", ErrStopping, l.reason)
}

// Leave begins what Stop does, for a reason that operators can see, and does not wait for the end:
// Done tells that. limit takes the place of Config.StopTimeout. The next heartbeat, which comes at
// once, brings the reason, as "leaving" among the node's resources, and so do the errors of jobs
// that are handed back. It is cut to 512 bytes.
//
// A Stop that comes later gives the running jobs Config.StopTimeout from then on, if that ends
// sooner. Leave changes nothing after a Stop or another Leave. It may be called concurrently.
func (w *Worker) Leave(reason string, limit time.Duration) {
	w.stopOnce.Do(func() {
		w.leaving.Store(&leaving{reason: truncate(reason, maxReasonBytes), limit: limit})
		close(w.stop)
	})
}

// drain lets running handlers end, then interrupts them, then gives up those that do not return.
// Each wait ends early when the worker is superseded.
func (w *Worker) drain() {
	why := w.leaving.Load()
	if why == nil {
		why = &leaving{limit: w.cfg.StopTimeout}
	}
	w.log.Info("node.draining", why.fields()...)
	idle := w.ledger.drain(why.cause())
	w.requestBeat()
	if w.await(idle, why.limit, w.hurry) {
		return
	}
	if jobs := w.ledger.interrupt(); len(jobs) > 0 {
		w.log.Info("node.jobs_interrupted", zap.Strings("job_ids", jobs))
	}
	if w.await(idle, w.cfg.InterruptGrace, nil) {
		return
	}
	closeOnce(w.abandon)
	w.await(idle, reportTimeout, nil)
}

func (w *Worker) await(idle <-chan struct{}, limit time.Duration, hurry <-chan struct{}) bool {
	select {
	case <-idle:
		return true
	case <-w.failed:
		return true
	case <-time.After(limit):
	case <-hurry:
	}
	return false
}

// supersede cancels every handler and waits a little for them. Their results are dropped, but an
// executor may have a process to end.
func (w *Worker) supersede() {
	w.log.Error("node.superseded", zap.String(logging.FieldReason, "another process has registered this node"))
	idle := w.ledger.drain(ErrStopping) // first, so that nothing begins that is not stopped
	w.ledger.abandon()
	select {
	case <-idle:
	case <-time.After(w.cfg.InterruptGrace):
		closeOnce(w.abandon) // drain may have done so before the worker was superseded
	}
}

// leave takes the node out of the fleet and closes the store.
func (w *Worker) leave() error {
	var errs []error
	if n := w.handling.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("stop: %d handlers ignore their cancelled context and still run", n))
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if w.Err() == nil {
		switch lost, err := w.store.Deregister(ctx, w.cfg.Node.ID, w.epoch); {
		case err != nil:
			errs = append(errs, fmt.Errorf("deregister node %s: %w", w.cfg.Node.ID, err))
		case len(lost) > 0:
			w.log.Warn(
				"node.jobs_handed_back", zap.Strings("job_ids", lost),
				zap.String(logging.FieldReason, "the node stopped before it could report how they ended"),
			)
		}
	}
	closeCtx, cancelClose := context.WithTimeout(context.Background(), callTimeout)
	defer cancelClose()
	if err := w.closeStore(closeCtx); err != nil {
		errs = append(errs, fmt.Errorf("close cell: %w", err))
	}
	w.log.Info("node.stopped")
	return errors.Join(errs...)
}
