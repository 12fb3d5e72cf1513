package dispatch

import (
	"time"

	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	retainInterval = 250 * time.Millisecond
	// retainCalls is the most calls that follow each other without a pause. Each handles one page.
	retainCalls = 32
)

// retention is the loop that keeps the records of the cell's ended jobs within retention_bytes, if
// it is set. Every replica runs it; Redis counts and drops each record once.
type retention struct {
	*cellClient
	outage *logging.Outage
}

func newRetention(c *cellClient) *retention {
	return &retention{cellClient: c, outage: logging.NewOutage(c.log, "records.retain_failed", "records.retained_again")}
}

func (r *retention) run() {
	if r.cell.Retains() {
		r.d.tick(retainInterval, nil, r.runOnce)
	}
}

func (r *retention) runOnce() {
	for range retainCalls {
		if !r.dropPage() {
			return
		}
	}
}

// dropPage returns true if there is more to do.
func (r *retention) dropPage() (more bool) {
	ctx, cancel := r.d.timeout()
	defer cancel()
	did, err := r.cell.Retain(ctx)
	if !r.succeeded(r.outage, err) {
		return false
	}
	r.metrics.retained.WithLabelValues().Set(float64(did.Bytes))
	r.metrics.dropped.Add(float64(did.Dropped))
	return did.More
}
