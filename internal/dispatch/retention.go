package dispatch

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	retainInterval = 250 * time.Millisecond
	// retainCalls is the most calls that follow each other without a pause. Each handles one page.
	retainCalls = 32
)

// retainRecords is the loop that keeps the records of the cell's ended jobs within retention_bytes,
// if it is set. Every replica runs it; Redis counts and drops each record once.
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

// retain returns true if there is more to do.
func (c *client) retain(outage *logging.Outage) (more bool) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	did, err := c.cell.Retain(ctx)
	if !c.succeeded(outage, err) {
		return false
	}
	c.metrics.retained.WithLabelValues().Set(float64(did.Bytes))
	c.metrics.dropped.Add(float64(did.Dropped))
	return did.More
}
