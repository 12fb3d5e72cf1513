package dispatch

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// This file divides a tenant's max_running and max_waiting over the cells. The scripts of a cell
// enforce its share.

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
	cells := len(d.byCell)
	share := limit / cells
	if index < limit%cells {
		share++
	}
	return max(share, 1)
}

// mustEnqueue reports whether a job is enqueued without being offered to nodes first: the
// enqueueing script decides about keys, the time and the limit of the tenant, and writes the
// origin.
func (d *Dispatcher) mustEnqueue(r *Request) bool {
	job := r.Job
	return r.Run != nil || job.IdempotencyKey != "" || job.RunAtMS != 0 || job.ConcurrencyKey != "" ||
		r.Origin != (cell.Origin{}) || d.cfg.Limits(r.Tenant).Running > 0
}

// guide returns what cells need to know about moving jobs.
func (d *Dispatcher) guide() *cell.Guide {
	return &cell.Guide{
		Weight: d.cfg.Weight,
		Home: func(tenant string, job *freeslot.Job) (int, bool) {
			key, ok := cellKey(job)
			if !ok {
				return 0, false
			}
			return d.classCells.of(d.nodes.Class(job.Service, &job.Requirement)).keyCell(tenant, key, job)
		},
		Limits: func(tenant string, job *freeslot.Job, cell int) []cell.Limit {
			return d.limitsOf(&Request{Tenant: tenant, Job: job}, cell)
		},
	}
}
