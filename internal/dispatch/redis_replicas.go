package dispatch

import (
	"fmt"
	"math/bits"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// watchReplicas is called by the replyKeeper, at its start and once a second. If jobs count as
// accepted only once replicas of Redis have them, and there are too few replicas, no job is sent. A
// job that is sent all the same fails by itself.
func (c *cellClient) watchReplicas() {
	need := c.cell.AcknowledgeReplicas()
	if need == 0 {
		return
	}
	ctx, cancel := c.d.timeout()
	defer cancel()
	have, err := c.cell.ReplicasOnline(ctx)
	if err != nil {
		return // renew logs a failing cell
	}
	if c.d.lackReplicas.set(c.cell.Index(), have < need) {
		c.log.Warn(
			"redis.replicas", zap.Int("online", have), zap.Int("acknowledge_replicas", need),
			zap.Bool("submits_refused", have < need),
		)
	}
}

// Replicated reports for readiness whether, as far as is known, Redis has the replicas that must
// confirm jobs. detail says how many cells lack them.
func (d *Dispatcher) Replicated() (ok bool, detail string) {
	lacking := d.lackReplicas.load()
	if lacking == 0 {
		return true, ""
	}
	return lacking != d.allCells, fmt.Sprintf("Redis has fewer than acknowledge_replicas (%d) replicas that keep up "+
		"with it, for %d of %d cells: no jobs are accepted there",
		d.cells.At(0).AcknowledgeReplicas(), bits.OnesCount64(uint64(lacking)), len(d.byCell))
}

func (d *Dispatcher) tooFewReplicasError() *freeslot.Error {
	return unavailable("acknowledge is replicated, and Redis has fewer than acknowledge_replicas (%d) replicas that "+
		"keep up with it: no new jobs until it has",
		d.cells.At(0).AcknowledgeReplicas())
}
