package nodeagent

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/retry"
	"github.com/freeslot/freeslot/worker"
)

// awaitNoNotice returns once there is no notice: a machine that is about to go must not take jobs.
// A first look that fails tells nothing, so it does not hold up the start.
func (a *Agent) awaitNoNotice(ctx context.Context) error {
	if a.lookout == nil {
		return nil
	}
	n, err := a.lookout.look(ctx)
	if err != nil || !n.there {
		return ctx.Err()
	}
	a.log.Warn(
		"interruption.waits", zap.String("notice", n.shown()),
		zap.String(logging.FieldReason, "the node is not registered before the interruption notice is withdrawn"),
	)
	a.waits.Store(true)
	defer a.waits.Store(false)
	for err != nil || n.there {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the interruption notice is still there: %w", ctx.Err())
		case <-a.worker.Done():
			return worker.ErrStopped
		case <-time.After(a.lookout.cfg.Interval):
		}
		n, err = a.lookout.look(ctx)
	}
	a.log.Info("interruption.withdrawn")
	return nil
}

// watchNotices drains the node after a notice, and states that a notice is withdrawn. The drain
// goes on then: its jobs and its registration are partly given up.
func (a *Agent) watchNotices(ctx context.Context) {
	there := false
	for {
		n, err := a.lookout.look(ctx)
		switch {
		case err != nil:
		case n.there && !there:
			there = true
			a.leave(&n)
		case !n.there && there:
			there = false
			a.log.Info("interruption.withdrawn")
		}
		if !retry.Wait(ctx, a.lookout.cfg.Interval) {
			return
		}
	}
}

// leave drains the node for a notice. Only the first notice of an agent does something.
func (a *Agent) leave(n *notice) {
	limit := a.lookout.cfg.StopTimeout
	a.log.Warn("interruption.notice", zap.String("notice", n.shown()), zap.Duration("stop_timeout", limit))
	a.checks.Close() // as in Stop
	a.announcer.drain()
	a.worker.Leave(interruptionReasonPrefix+n.shown(), limit)
	a.noticed.Do(func() { close(a.interrupted) })
}

// Interrupted returns a channel that is closed when the agent drains because of an interruption
// notice. Done is closed after the drain. Start of a new agent then waits until the notice is
// withdrawn.
func (a *Agent) Interrupted() <-chan struct{} { return a.interrupted }

// Waits reports whether Start waits for the end of an interruption notice.
func (a *Agent) Waits() bool { return a.waits.Load() }
