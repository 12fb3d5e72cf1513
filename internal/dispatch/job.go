package dispatch

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Cancel ends a waiting job, and asks the node of a running one to stop it. Tenant "" means any
// tenant. The error is a *freeslot.Error.
func (d *Dispatcher) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return d.CancelIf(ctx, tenant, jobID, cell.Seen{})
}

// CancelIf is Cancel, but leaves a job alone that is not as it was seen; see cell.Set.CancelIf.
// The error is a *freeslot.Error.
func (d *Dispatcher) CancelIf(
	ctx context.Context, tenant, jobID string, seen cell.Seen,
) (freeslot.JobStatus, error) {
	s, err := d.cells.CancelIf(ctx, tenant, jobID, seen)
	return s, d.coded("cancel", err)
}

// Job reads a job's record. HeldBy says why the job waits: a limit, according to the record, or a
// pause of its class. WaitsForPool is as the cache knows the nodes. Tenant "" means any tenant. The
// error is a *freeslot.Error.
func (d *Dispatcher) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cells.Job(ctx, tenant, jobID)
	if err == nil && s.State == freeslot.StateWaiting && s.HeldBy == "" {
		if s.WaitsForPool = d.waitsForPool(&s); d.classPaused(s.Class) {
			s.HeldBy = freeslot.HeldByPause
		}
	}
	return s, d.coded("read job", err)
}

// Jobs lists jobs; see cell.Set.Jobs. The error is a *freeslot.Error.
func (d *Dispatcher) Jobs(ctx context.Context, f cell.JobFilter, cursor string, limit int) (cell.JobPage, error) {
	page, err := d.cells.Jobs(ctx, f, cursor, limit)
	return page, d.coded("list jobs", err)
}

// JobsByKey returns the job that a tenant's idempotency key names; see cell.Set.JobsByKey. The
// error is a *freeslot.Error.
func (d *Dispatcher) JobsByKey(ctx context.Context, f cell.JobFilter, key string) (cell.JobPage, error) {
	page, err := d.cells.JobsByKey(ctx, f, key)
	return page, d.coded("list jobs", err)
}

// DeadLetters counts dead jobs; see cell.Set.DeadLetters. The error is a *freeslot.Error.
func (d *Dispatcher) DeadLetters(ctx context.Context, f cell.JobFilter, by []cell.DeadKey) (cell.DeadLetters, error) {
	found, err := d.cells.DeadLetters(ctx, f, by)
	return found, d.coded("count dead jobs", err)
}

// owners returns the nodes of a cell that may own jobs, as far as the cache knows; false if it may
// have missed some.
func (d *Dispatcher) owners(index int) (ids []string, ok bool) {
	if d.nodes.Size() == 0 || d.nodes.Stale() {
		return nil, false
	}
	for _, n := range d.nodes.AllNodes() {
		if used, pending := n.Load(); n.Cell() == index && used+pending > 0 {
			ids = append(ids, n.ID())
		}
	}
	return ids, true
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
	q := d.knownQueue(class)
	return q != nil && d.nodes.Class(q.job.Service, &q.job.Requirement).Paused() != ""
}
