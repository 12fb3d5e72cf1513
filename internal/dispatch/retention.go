package dispatch

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	retainInterval = 250 * time.Millisecond
	// retainCalls is how many calls follow each other without a pause. Each does a page.
	retainCalls = 32
)

// retainRecords keeps the records of ended jobs of the cell within their bytes, where these
// are limited. Every replica does: what one has counted and dropped the others do not find any more.
func (c *client) retainRecords() {
	if !c.cell.Retains() {
		return
	}
	outage := logging.NewOutage(c.log, "records.retain_failed", "records.retained_again")
	c.tick(retainInterval, nil, func() {
		for range retainCalls {
			if !c.retain(outage) {
				return
			}
		}
	})
}

// retain returns true when there is more to do.
func (c *client) retain(outage *logging.Outage) (more bool) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	did, err := c.cell.Retain(ctx)
	if err != nil {
		if c.d.ctx.Err() == nil {
			outage.Failed(err)
		}
		return false
	}
	outage.Over()
	c.metrics.retained.WithLabelValues().Set(float64(did.Bytes))
	c.metrics.dropped.Add(float64(did.Dropped))
	return did.More
}
