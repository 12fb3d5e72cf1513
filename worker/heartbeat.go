package worker

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/logging"
)

// minBeatGap bounds how often requests can make the loop beat.
const minBeatGap = 20 * time.Millisecond

// heartbeats beats every interval, and at once when asked. After a failure it only
// heeds its own growing pauses: what asks for heartbeats then has the same cause.
func (w *Worker) heartbeats(ctx context.Context) {
	timer := time.NewTimer(jitter(w.cfg.HeartbeatInterval))
	defer timer.Stop()
	pauses := retryPauses()
	failing := false
	for {
		requests := w.beatNow
		if failing {
			requests = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-requests:
		}
		next := w.cfg.HeartbeatInterval
		switch err := w.beat(ctx); {
		case ctx.Err() != nil || errors.Is(err, ErrSuperseded):
			return
		case err != nil:
			if !failing {
				w.log.Warn("heartbeat.failed", zap.Error(err))
			}
			failing = true
			next = min(pauses.NextBackOff(), next)
		case failing:
			w.log.Info("heartbeat.recovered")
			failing = false
			pauses.Reset()
			w.readAgain()
		}
		if !failing && !pause(ctx, min(minBeatGap, next)) {
			return
		}
		timer.Reset(next)
	}
}

// beat sends one heartbeat and applies the reply. A node that is not known
// registers again; the heartbeat that it then asks for says what it still owns.
func (w *Worker) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	names, number := w.ledger.beat()
	hb := cell.Heartbeat{
		Node:      w.cfg.Node.ID,
		Epoch:     w.epoch,
		Status:    freeslot.StatusOnline,
		Resources: w.sampler.resources(int(w.handling.Load()), w.cfg.Node.MaxConcurrency),
		Running:   names,
		Read:      *w.position.Load(),
	}
	read := hb.Read
	if read == w.trimmed {
		hb.Read = "" // older entries are gone already
	}
	stopping := w.ledger.isDraining()
	if stopping || w.offers() == 0 {
		hb.Status = freeslot.StatusDraining
	}
	begun := time.Now()
	reply, err := w.store.Heartbeat(ctx, hb)
	switch {
	case errors.Is(err, cell.ErrSuperseded):
		w.fail(ErrSuperseded)
		return ErrSuperseded
	case errors.Is(err, cell.ErrUnknownNode):
		if stopping {
			w.noMoreJobs()
		}
		return w.reregister(ctx)
	case err != nil:
		w.metrics.heartbeatFailures.Inc()
		return err
	}
	w.metrics.heartbeatSeconds.Observe(time.Since(begun).Seconds())
	w.trimmed = read
	w.renew(begun)
	w.apply(reply)
	w.ledger.answered(number)
	if stopping {
		w.noMoreJobs()
		return nil
	}
	if max(w.offers(), 1) != w.registered {
		return w.register(ctx)
	}
	return nil
}

// noMoreJobs notes that Redis places no more jobs here. Only the heartbeats' loop calls it.
func (w *Worker) noMoreJobs() {
	select {
	case <-w.draining:
	default:
		close(w.draining)
	}
}

// apply heeds a reply. Cancels come first: an attempt that is to start and to be
// cancelled must not run.
func (w *Worker) apply(reply cell.HeartbeatReply) {
	for _, id := range reply.Stop {
		w.ledger.disown(id)
	}
	for _, id := range reply.Cancel {
		w.ledger.ask(id)
	}
	for _, id := range reply.Start {
		w.take(id, nil, "")
	}
}

// reregister brings back a node that was given up for dead or whose Redis lost its
// data. The epoch stays, for it names this process. A draining node stays away; the
// answers to its completions say whether it owned what it runs.
func (w *Worker) reregister(ctx context.Context) error {
	if w.ledger.isDraining() {
		return nil
	}
	w.log.Warn("node.forgotten", zap.String(logging.FieldReason, "Redis does not know the node any more; it registers again"))
	if err := w.register(ctx); err != nil {
		w.metrics.heartbeatFailures.Inc()
		return err
	}
	w.requestBeat()
	return nil
}
