package dispatch

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Cancel ends a waiting job, and asks the node of a running one to stop it. Tenant "" means any
// tenant. The error is a *freeslot.Error.
func (d *Dispatcher) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cells.Cancel(ctx, tenant, jobID)
	return s, d.coded("cancel", err)
}

// Job reads a job's record. HeldBy says why the job waits: a limit, according to the record, or a
// pause of its class. Tenant "" means any tenant. The error is a *freeslot.Error.
func (d *Dispatcher) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cells.Job(ctx, tenant, jobID)
	if err == nil && s.State == freeslot.StateWaiting && s.HeldBy == "" && d.classPaused(s.Class) {
		s.HeldBy = freeslot.HeldByPause
	}
	return s, d.coded("read job", err)
}

// Jobs lists jobs; see cell.Set.Jobs. The error is a *freeslot.Error.
func (d *Dispatcher) Jobs(ctx context.Context, f cell.JobFilter, cursor string, limit int) (cell.JobPage, error) {
	page, err := d.cells.Jobs(ctx, f, cursor, limit)
	return page, d.coded("list jobs", err)
}

// Drop deletes the record of a job that has ended; see cell.Cell.Drop. The error is a
// *freeslot.Error.
func (d *Dispatcher) Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cells.Drop(ctx, tenant, jobID)
	return s, d.coded("drop", err)
}

// classPaused reports whether the class with this id, which has waiting jobs, is paused as a whole.
// It returns false for a class that this replica does not know yet.
func (d *Dispatcher) classPaused(class string) bool {
	for _, c := range d.byCell {
		if q, known := c.queues.byID.Load(class); known {
			return d.nodes.Class(q.job.Service, &q.job.Requirement).Paused() != ""
		}
	}
	return false
}
