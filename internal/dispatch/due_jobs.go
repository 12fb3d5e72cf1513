package dispatch

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	dueInterval = 250 * time.Millisecond
	// dueLimit is how many jobs one call handles, and dueCalls how many calls follow each
	// other without a pause.
	dueLimit = 256
	dueCalls = 16
)

// handleDue has the jobs of the cell go on whose pause before a retry is over, and those
// end whose deadline has passed. Every replica does: what one has handled the others do
// not find any more.
func (c *client) handleDue() {
	ticks := 0
	c.tick(dueInterval, nil, func() {
		if ticks++; ticks%limitTicks == 0 {
			c.checkLimits()
		}
		for range dueCalls {
			if !c.due() {
				return
			}
		}
	})
}

// due returns true when there is more to do.
func (c *client) due() (more bool) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	did, err := c.cell.Due(ctx, dueLimit)
	if err != nil {
		if c.d.ctx.Err() == nil {
			c.contact.lost()
			c.tending.Failed(err)
		}
		return false
	}
	c.contact.made(c.d.nodes.Now())
	c.tending.Over()
	c.metrics.expired.Add(float64(did.Expired))
	if len(did.Classes) > 0 {
		c.wakeSweep()
	}
	return did.More
}

// contact is since when a cell has answered without a break, on the clock of Nodes.Now.
type contact struct {
	since     atomic.Int64
	connected atomic.Bool
}

func (c *contact) made(now int64) {
	if !c.connected.Load() {
		c.since.Store(now)
		c.connected.Store(true)
	}
}

func (c *contact) lost() { c.connected.Store(false) }

// lasts reports whether there was contact all the time since, and for how long.
func (c *contact) lasts(now int64) time.Duration {
	if !c.connected.Load() {
		return 0
	}
	return time.Duration(now - c.since.Load())
}
