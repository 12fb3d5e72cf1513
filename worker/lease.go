package worker

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// renew records that a heartbeat that began at that time has been answered. Only the heartbeat loop
// calls it.
func (w *Worker) renew(begun time.Time) {
	select {
	case <-w.renewals: // one that the lease loop has not seen yet
	default:
	}
	w.renewals <- begun
}

// leases stops the handlers of jobs that ask for it once no heartbeat has been answered for the
// heartbeat limit. From then on schedulers may have taken the node out, and the jobs may begin
// elsewhere. The limit counts from the call of the last answered heartbeat. Redis took that
// heartbeat in later, so this clock is never behind the schedulers'.
func (w *Worker) leases(ctx context.Context) {
	timer := time.NewTimer(w.limit)
	defer timer.Stop()
	lost := false
	for {
		select {
		case <-ctx.Done():
			return
		case begun := <-w.renewals:
			timer.Reset(max(time.Until(begun.Add(w.limit)), 0))
			if lost {
				lost = false
				w.ledger.renewLease()
			}
		case <-timer.C:
			if len(w.renewals) > 0 {
				continue
			}
			lost = true
			if jobs := w.ledger.loseLease(); len(jobs) > 0 {
				w.log.Warn("node.lease_lost", zap.Duration("heartbeat_limit", w.limit), zap.Strings("cancelled", jobs))
			}
		}
	}
}

// loseLease stops the running jobs that ask for it. No such job begins until renewLease.
func (l *ledger) loseLease() (stopped []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutOff = true
	for _, a := range l.held {
		if a.phase == running && a.job.OnLeaseLoss == freeslot.LeaseLossCancel && a.ctx.Err() == nil {
			a.cancel(ErrLeaseLost)
			stopped = append(stopped, a.id.Job)
		}
	}
	return stopped
}

func (l *ledger) renewLease() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutOff = false
}

// stop cancels a running attempt, unless its end is decided. cause is a reason on the node's side.
func (l *ledger) stop(a *attempt, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.phase == running {
		a.cancel(cause)
	}
}
