package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/heartbeat"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/retry"
)

const (
	// minBeatGap bounds how often requests can make the loop beat.
	minBeatGap = 20 * time.Millisecond
	// changeGap bounds how often changed figures can make the loop beat. A figure that swings about
	// its threshold is not worth more heartbeats.
	changeGap = time.Second
)

// heartbeats sends a heartbeat every interval, and at once when asked or when a figure has changed
// by its threshold. It is one loop, so no two heartbeats are under way. After a failure it follows
// only its own growing pauses, because the requests for heartbeats then have the same cause.
func (w *Worker) heartbeats(ctx context.Context) {
	var asked, failing, begun bool // asked applies to the heartbeat under way
	var ended time.Time            // when the last heartbeat did
	d := w.decider(&asked)
	timer := time.NewTimer(jitter(w.cfg.HeartbeatInterval))
	defer timer.Stop()
	pauses, tell := retry.Pauses(), sync.OnceFunc(d.Forget) // the resources bring the reason of a leave
	defer w.turned.Store(nil)
	for {
		w.turn()
		requests, changes := w.beatNow, w.figures.Changed()
		if failing || !begun { // otherwise the first figures would make a fleet beat at once
			changes = nil
		}
		if failing {
			requests = nil
		}
		asked = failing
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-requests:
			if !w.awaitGap(ctx, ended) {
				return
			}
			asked = true
		case <-changes:
		}
		if w.leaving.Load() != nil {
			tell()
		}
		now := time.Now()
		figures, taken := w.figures.Taken()
		metrics := heartbeat.Metrics(figures.Flat())
		decision := d.Decide(now, metrics)
		if asked {
			decision = d.Demand(now, metrics)
		}
		if decision == heartbeat.None {
			timer.Reset(d.Next(now, metrics))
			continue
		}
		begun = true
		d.Begin(decision, now, metrics)
		switch err := w.beat(ctx, d, decision, asked, figures, taken); {
		case ctx.Err() != nil || errors.Is(err, ErrSuperseded):
			return
		case err != nil:
			if !failing {
				w.log.Warn("heartbeat.failed", zap.Error(err))
			}
			failing = true
			w.doubt()
			d.Forget()
			timer.Reset(min(pauses.NextBackOff(), w.cfg.HeartbeatInterval))
			continue
		case failing:
			w.log.Info("heartbeat.recovered")
			failing = false
			pauses.Reset()
			w.readAgain()
		}
		ended = time.Now()
		timer.Reset(d.Next(ended, metrics)) // the interval counts from the beginning of the beat
	}
}

// awaitGap waits until minBeatGap has passed since the last heartbeat. One heartbeat serves all
// requests that come meanwhile. It returns false if ctx ends.
func (w *Worker) awaitGap(ctx context.Context, ended time.Time) bool {
	left := minBeatGap - time.Since(ended)
	if left <= 0 {
		return true
	}
	if !retry.Wait(ctx, left) {
		return false
	}
	select {
	case <-w.beatNow:
	default:
	}
	return true
}

// decider returns what decides when heartbeats are sent. asked is true while somebody has asked for
// the heartbeat under way.
func (w *Worker) decider(asked *bool) *heartbeat.Decider {
	return heartbeat.New(heartbeat.Policy{
		HeartbeatInterval: w.cfg.HeartbeatInterval, MetadataInterval: w.cfg.MetadataInterval, MetadataGap: changeGap,
		Thresholds: w.cfg.Thresholds, DisableImmediate: w.cfg.DisableImmediateUpdate,
		Jitter: func(interval time.Duration) time.Duration {
			if *asked { // perhaps all nodes of a gateway were asked at once: they must not stay in step
				return jitter(interval)
			}
			return shorten(interval)
		},
	})
}

// beat sends one heartbeat, which d has begun, and applies the reply. asked is true if something
// waits for the reply. A node that Redis does not know registers again; the heartbeat after that
// finds out what the node still owns.
func (w *Worker) beat(
	ctx context.Context, d *heartbeat.Decider, decision heartbeat.Decision, asked bool, figures collector.Snapshot,
	taken map[string]time.Time,
) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	names, number := w.ledger.beat()
	hb := cell.Heartbeat{
		Node:    w.cfg.Node.ID,
		Epoch:   w.epoch,
		Status:  freeslot.StatusOnline,
		Running: names,
		Read:    *w.position.Load(),
		Now:     asked,
	}
	if decision == heartbeat.MetadataUpdate {
		hb.Resources = w.resources(figures, taken)
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
	case errors.Is(err, cell.ErrUnknownNode) && stopping:
		// A draining node stays away. The answers to its completions tell whether it owned what it
		// runs.
		d.Succeeded()
		closeOnce(w.draining)
		return nil
	case errors.Is(err, cell.ErrUnknownNode):
		d.Failed()
		return w.reregister(ctx, d)
	case err != nil:
		d.Failed()
		w.latency.Store(0)
		w.metrics.heartbeatFailures.Inc()
		return err
	}
	d.Succeeded()
	w.measured(time.Since(begun), decision)
	w.trimmed = read
	w.renew(begun)
	w.apply(reply)
	w.ledger.answered(number)
	w.lookForSchedulers(ctx)
	if stopping {
		closeOnce(w.draining)
		return nil
	}
	if w.profileDue() {
		return w.register(ctx)
	}
	return nil
}

// measured records how long an answered heartbeat took.
func (w *Worker) measured(took time.Duration, decision heartbeat.Decision) {
	w.latency.Store(int64(max(took, 1)))
	w.metrics.heartbeatSeconds.Observe(took.Seconds())
	w.metrics.heartbeats.WithLabelValues(decision.String()).Inc()
}

// lookForSchedulers warns once if no scheduler will ever see the node, and names the most likely
// reason. It asks after the second heartbeat: agents wait for the scripts, and a starting scheduler
// loads them a moment before it can be seen.
func (w *Worker) lookForSchedulers(ctx context.Context) {
	if w.beats++; w.beats < 2 || w.looked {
		return
	}
	served, err := w.store.Served(ctx)
	if err != nil {
		return // the heartbeat that fails logs it, and the next one asks again
	}
	w.looked = true
	if !served {
		w.log.Warn("node.unseen", zap.String(logging.FieldReason, "no scheduler has ever been there: "+
			"Redis' address and database, key prefix and number of cells must be the schedulers'"),
			zap.String("key_prefix", w.cfg.KeyPrefix), zap.Int("cells", w.cfg.Cells))
	}
}

// RedisLatency returns the duration of the last heartbeat; false before the first one and while
// Redis does not answer.
func (w *Worker) RedisLatency() (time.Duration, bool) {
	took := time.Duration(w.latency.Load())
	return took, took > 0
}

// apply carries out a reply. Cancels come before starts: an attempt that is to start and to be
// cancelled must not run.
func (w *Worker) apply(reply cell.HeartbeatReply) {
	for _, id := range reply.Stop {
		w.ledger.disown(id)
	}
	for _, id := range reply.Cancel {
		w.ledger.ask(id)
	}
	for _, id := range reply.Start {
		w.take(id, nil, "", false)
	}
}

// reregister brings back a node that was reaped, or whose Redis lost its data. The figures are due
// again. The epoch stays, because it names this process.
func (w *Worker) reregister(ctx context.Context, d *heartbeat.Decider) error {
	w.log.Warn(
		"node.forgotten", zap.String(logging.FieldReason, "Redis does not know the node any more; it registers again"),
	)
	w.registered = 0
	if err := w.register(ctx); err != nil {
		w.metrics.heartbeatFailures.Inc()
		return err
	}
	d.Forget()
	w.requestBeat()
	return nil
}

// jitter spreads the next heartbeats of processes that start together, or were asked at the same
// time.
func jitter(d time.Duration) time.Duration { return rand.N(d) + 1 }

// shorten takes up to a tenth off an interval. It never adds: a late heartbeat can cost the node
// its jobs.
func shorten(d time.Duration) time.Duration { return d - rand.N(d/10+1) }
