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
func (l *link) retainRecords() {
	if !l.cell.Retains() {
		return
	}
	outage := logging.NewOutage(l.log, "records.retain_failed", "records.retained_again")
	l.tick(retainInterval, nil, func() {
		for range retainCalls {
			if !l.retain(outage) {
				return
			}
		}
	})
}

// retain returns true when there is more to do.
func (l *link) retain(outage *logging.Outage) (more bool) {
	ctx, cancel := context.WithTimeout(l.d.ctx, ioTimeout)
	defer cancel()
	did, err := l.cell.Retain(ctx)
	if err != nil {
		if l.d.ctx.Err() == nil {
			outage.Failed(err)
		}
		return false
	}
	outage.Over()
	l.metrics.retained.WithLabelValues().Set(float64(did.Bytes))
	l.metrics.dropped.Add(float64(did.Dropped))
	return did.More
}
