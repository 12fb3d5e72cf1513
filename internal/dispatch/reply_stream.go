package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// keepReplies keeps the reply stream alive and trimmed, and reads the records of
// jobs that have been outstanding for long: a reply is a hint and can be lost.
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

// keep returns true when the stream had to be opened anew: replies may be lost.
func (c *client) renewReplies() bool {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	err := c.cell.KeepReplies(ctx, c.d.cfg.Replica, c.lastRead.load())
	if errors.Is(err, cell.ErrRepliesGone) {
		err = c.cell.OpenReplies(ctx, c.d.cfg.Replica)
		if err == nil {
			c.log.Warn("replies.reopened")
			c.d.failing.set(c.cell.Index(), false)
			c.keeping.Over()
			return true
		}
	}
	if c.d.ctx.Err() == nil {
		c.d.failing.set(c.cell.Index(), err != nil && isAway(err))
		if err != nil {
			if isAway(err) {
				c.stopReading()
			}
			c.keeping.Failed(err)
		} else {
			c.keeping.Over()
		}
	}
	return false
}
