package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// renewInterval is the interval at which a reply stream is renewed and trimmed.
	renewInterval = time.Second
	// watchTime is how long a stream that another process has opened is watched. A running process
	// renews it within that time.
	watchTime = renewInterval * 7 / 4
)

// ErrReplicaRuns is returned by Start if another process runs under the same replica id. Each would
// take results that the other's clients await.
var ErrReplicaRuns = errors.New("another process runs under this replica id")

func (c *client) openReplies(ctx context.Context) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	return c.cell.OpenReplies(ctx, c.d.cfg.Replica)
}

// checkAlone checks that no other process renews a stream with this name. A stream left by a crash
// only grows older, and is taken over.
func (c *client) checkAlone(ctx context.Context) error {
	left, err := c.cell.RepliesLeft(ctx, c.d.cfg.Replica)
	if err != nil || left == 0 {
		return err
	}
	c.log.Info("replies.found", zap.Duration("watched_for", watchTime))
	tick := time.NewTicker(watchTime / 8)
	defer tick.Stop()
	for end := time.Now().Add(watchTime); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := c.cell.RepliesLeft(ctx, c.d.cfg.Replica)
		switch {
		case err != nil:
			return err
		case now > left:
			return fmt.Errorf("%w: replica_id is %s, expected one that no other replica has", ErrReplicaRuns, c.d.cfg.Replica)
		}
		left = now
	}
	return nil
}

func (c *client) closeReplies(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	return c.cell.CloseReplies(ctx, c.d.cfg.Replica)
}

// keepReplies is the loop that renews and trims the reply stream. It also reads the records of jobs
// that have been outstanding for long, because a reply can be lost.
func (c *client) keepReplies() {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	c.watchReplicas()
	for {
		select {
		case <-c.d.ctx.Done():
			return
		case <-ticker.C:
		}
		c.watchMemory()
		c.watchReplicas()
		if c.renewReplies() {
			c.recheckOlder(0)
		} else {
			c.recheckOlder(c.d.cfg.RecheckInterval)
		}
	}
}

// renewReplies returns true if the stream was gone and had to be reopened: replies may be lost.
func (c *client) renewReplies() (reopened bool) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	err := c.cell.KeepReplies(ctx, c.d.cfg.Replica, *c.lastRead.Load())
	if errors.Is(err, cell.ErrRepliesGone) {
		c.unrecorded = true
		if err = c.cell.OpenReplies(ctx, c.d.cfg.Replica); err == nil {
			c.log.Warn("replies.reopened")
			reopened = true
		}
	}
	if err == nil && c.unrecorded {
		c.recordAgain(ctx)
	}
	if c.d.ctx.Err() != nil {
		return false
	}
	away := err != nil && isAway(err)
	c.d.failing.set(c.cell.Index(), away)
	if away {
		c.stopReading()
	}
	c.succeeded(c.keeping, err)
	return reopened
}
