package dispatch

import (
	"context"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/script"
)

const (
	dueInterval = 250 * time.Millisecond
	// dueLimit is the most jobs that one call handles.
	dueLimit = 256
	// dueCalls is the most calls that follow each other without a pause.
	dueCalls = 16
	// mendTicks is the number of rounds between two checks of the sets for operators. Each checks
	// mendNodes: more would hold up Redis for longer than 1 ms.
	mendTicks = 20
	mendNodes = 64
)

// handleDue is the loop for due jobs of the cell: a retry or a scheduled job begins to wait, a job
// past its deadline ends. Every replica runs it; Redis handles each job once.
func (c *client) handleDue() {
	ticks := 0
	// These calls also prove contact, because each of them writes. A short silence limit needs them
	// more often.
	interval := min(dueInterval, c.d.nodes.SilenceLimit()/reapsPerLimit)
	c.tick(max(interval, time.Millisecond), nil, func() {
		if ticks++; ticks%limitTicks == 0 {
			c.checkLimits()
		}
		if ticks%mendTicks == 0 && c.d.goesFirst("cell "+strconv.Itoa(c.cell.Index())) {
			c.mendSets()
		}
		for range dueCalls {
			if !c.due() {
				return
			}
		}
	})
}

// mendSets corrects what operators read of some nodes.
func (c *client) mendSets() {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	// A missing right does not pass by itself: an outage is not logged with each call.
	c.succeeded(c.mending, c.cell.Mend(ctx, mendNodes))
}

// due returns true if there is more to do.
func (c *client) due() (more bool) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	sent := c.d.nodes.Now()
	did, err := c.cell.Due(ctx, dueLimit)
	_, refusal := script.Refusal(err)
	c.refusal.Store(&refusal)
	if !c.succeeded(c.tending, err) {
		if c.d.ctx.Err() == nil {
			c.contact.lost()
		}
		return false
	}
	c.contact.made(sent, c.d.nodes.Now(), c.contactGap())
	c.metrics.expired.Add(float64(did.Expired))
	if len(did.Classes) > 0 {
		c.wakeSweep()
	}
	return did.More
}
