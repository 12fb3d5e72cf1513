package dispatch

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// watchReplicas is called by the keeper, at the start and once a second: where jobs count as
// accepted only once replicas of Redis have them, and there are too few, none is sent. A job
// that is sent all the same finds out by itself.
func (c *client) watchReplicas() {
	need := c.cell.AcknowledgeReplicas()
	if need == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	have, err := c.cell.ReplicasOnline(ctx)
	if err != nil {
		return // as with memory
	}
	if c.d.lackReplicas.set(c.cell.Index(), have < need) {
		c.log.Warn("redis.replicas", zap.Int("online", have), zap.Int("acknowledge_replicas", need), zap.Bool("submits_refused", have < need))
	}
}

// Replicated reports whether Redis has the replicas that must confirm jobs, as far as is
// known, and for how many cells it has not. It is for readiness.
func (d *Dispatcher) Replicated() (ok bool, detail string) {
	bare := d.lackReplicas.load()
	if bare == 0 {
		return true, ""
	}
	n := 0
	for i := range d.clients {
		if bare.Has(i) {
			n++
		}
	}
	return bare != d.allCells, fmt.Sprintf("Redis has fewer than acknowledge_replicas (%d) replicas that keep up with it, for %d of %d cells: no jobs are accepted there",
		d.cells.At(0).AcknowledgeReplicas(), n, len(d.clients))
}

func (d *Dispatcher) tooFewReplicasError() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
		Message: fmt.Sprintf("acknowledge is replicated, and Redis has fewer than acknowledge_replicas (%d) replicas that keep up with it: no new jobs until it has",
			d.cells.At(0).AcknowledgeReplicas()),
	}
}
