package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/freeslot/freeslot/internal/cell"
)

// recordAgain is called by keepReplies after the reply stream was gone, until it succeeds. Redis may
// have lost all data, so it writes again what the start of a replica records. Otherwise a replica
// with another number of cells could start and record its own, and agents would see no scheduler.
func (c *client) recordAgain(ctx context.Context) {
	err := c.cell.Record(ctx)
	if err == nil || cell.IsRefusal(err) {
		c.d.misrecorded.set(c.cell.Index(), err != nil)
	}
	c.unrecorded = !c.succeeded(c.recording, errors.Join(err, c.announceAgain(ctx)))
}

// Recorded reports for readiness whether, as far as is known, every cell would accept a start of
// this replica. detail says how many cells would refuse it.
func (d *Dispatcher) Recorded() (ok bool, detail string) {
	refused := d.misrecorded.load()
	if refused == 0 {
		return true, ""
	}
	return false, fmt.Sprintf("Redis lost its data, and a process with other redis.cells or redis.urls, "+
		"or another release, began anew in %d of %d cells: stop that process, then delete what the log (record.failed) names",
		bits.OnesCount64(uint64(refused)), len(d.clients))
}
