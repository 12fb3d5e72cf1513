package dispatch

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Limits bound the jobs of one tenant. A limit of 0 is none; another one is at least the
// number of cells.
type Limits struct {
	// Running is how many may run at a time; further ones are held back.
	Running int
	// Waiting is how many may wait for a slot, after a failure or for a time; further
	// ones are refused as overloaded. It is looked at when a job gets no slot at once, and
	// at every submission of a tenant with a limit of Running.
	Waiting int
}

// gatesOf are the gates of a job in a cell. Each cell has its share of a tenant's limits,
// and the cell of a concurrency key all of that.
func (d *Dispatcher) limitsOf(r *Request, index int) (gates []cell.Gate) {
	limits := d.cfg.Limits(r.Tenant)
	if limits.Running > 0 {
		gates = append(gates, cell.RunningGate(r.Tenant, d.limitShare(limits.Running, index)))
	}
	if key := r.Job.ConcurrencyKey; key != "" {
		gates = append(gates, cell.KeyGate(r.Tenant, key, r.Job.KeyLimit()))
	}
	if limits.Waiting > 0 {
		gates = append(gates, cell.WaitingGate(r.Tenant, d.limitShare(limits.Waiting, index)))
	}
	return gates
}

// limitShare divides a limit over the cells so that the shares add up to it.
func (d *Dispatcher) limitShare(limit, index int) int {
	cells := len(d.clients)
	share := limit / cells
	if index < limit%cells {
		share++
	}
	return max(share, 1)
}

// queuedFirst reports whether a job is enqueued without being offered to nodes before: what
// its keys, its time or the limit of its tenant mean is decided there.
func (d *Dispatcher) mustEnqueue(r *Request) bool {
	job := r.Job
	return r.Run != nil || job.IdempotencyKey != "" || job.RunAtMS != 0 || job.ConcurrencyKey != "" || d.cfg.Limits(r.Tenant).Running > 0
}

// homeKey is the key by which the job's cell is chosen; false where any will do.
func cellKey(job *freeslot.Job) (key string, ok bool) {
	if job.ConcurrencyKey != "" {
		return job.ConcurrencyKey, true
	}
	return job.IdempotencyKey, job.IdempotencyKey != ""
}

// gateTicks is how many looks at what is due there are to one at the gates, and
// gateLimit how many gates that is.
const (
	limitTicks = 4
	limitBatch = 64
)

// checkGates has jobs that are held back beside an open gate go on. The script that opens a gate
// does so too; this finds what it could not.
func (c *client) checkLimits() {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	gated, err := c.cell.Gated(ctx)
	if err != nil || !gated {
		return // due says what fails
	}
	classes, err := c.cell.CheckGates(ctx, limitBatch)
	if err != nil {
		if c.d.ctx.Err() == nil {
			logFailure(c.sampled, "check gates", err)
		}
		return
	}
	if len(classes) > 0 {
		c.wakeSweep()
	}
}
