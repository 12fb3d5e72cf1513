package dispatch

import (
	"context"

	"github.com/freeslot/freeslot/internal/cell"
)

// This file divides a tenant's max_running and max_waiting over the cells, and makes sure that jobs
// held back by a limit continue. The scripts of a cell enforce its share.

// Limits bounds the jobs of one tenant. 0 means no limit. Any other limit must be at least the
// number of cells.
type Limits struct {
	// Running (max_running) is how many jobs may run at a time. Further ones are held back.
	Running int
	// Waiting (max_waiting) is how many jobs may wait for a slot, after a failure or for a time.
	// Further ones are refused as overloaded. It is checked when a job gets no slot at once, and
	// at every submit of a tenant with a Running limit.
	Waiting int
}

// limitsOf returns the limits of a job in a cell. Each cell has its share of a tenant's limits. The
// limit of a concurrency key is not divided, because all jobs of the key go to one cell.
func (d *Dispatcher) limitsOf(r *Request, index int) (all []cell.Limit) {
	limits := d.cfg.Limits(r.Tenant)
	if limits.Running > 0 {
		all = append(all, cell.RunningLimit(r.Tenant, d.limitShare(limits.Running, index)))
	}
	if key := r.Job.ConcurrencyKey; key != "" {
		all = append(all, cell.KeyLimit(r.Tenant, key, r.Job.KeyLimit()))
	}
	if limits.Waiting > 0 {
		all = append(all, cell.WaitingLimit(r.Tenant, d.limitShare(limits.Waiting, index)))
	}
	return all
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

// mustEnqueue reports whether a job is enqueued without being offered to nodes first: the
// enqueueing script decides about keys, the time and the limit of the tenant.
func (d *Dispatcher) mustEnqueue(r *Request) bool {
	job := r.Job
	return r.Run != nil || job.IdempotencyKey != "" || job.RunAtMS != 0 || job.ConcurrencyKey != "" ||
		d.cfg.Limits(r.Tenant).Running > 0
}

const (
	// limitTicks is the number of rounds of due jobs for each check of limits.
	limitTicks = 4
	// limitBatch is how many limits one check looks at.
	limitBatch = 64
)

// checkLimits lets jobs continue that are held back although their limit has room. The script that
// makes room does that, too; this finds what the script could not.
func (c *client) checkLimits() {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	limited, err := c.cell.Limited(ctx)
	if err != nil || !limited {
		return // due logs a failing cell
	}
	classes, err := c.cell.CheckLimits(ctx, limitBatch)
	if err != nil {
		if c.d.ctx.Err() == nil {
			logFailure(c.sampled, "check limits", err)
		}
		return
	}
	if len(classes) > 0 {
		c.wakeSweep()
	}
}
