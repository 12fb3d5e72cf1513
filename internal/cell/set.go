package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
)

// MaxCells is the most cells that a system can have.
const MaxCells = selection.MaxCells

// Set holds all cells of a system, in the order of their indexes. It never changes, except for its
// guide, and is safe for concurrent use. Its methods ask the cells at the same time, so a cell that
// does not answer does not delay the others.
type Set struct {
	cells []*Cell
	guide atomic.Pointer[Guide]
}

// NewSet returns a set of at least one cell. The index of each cell must be its place.
func NewSet(cells ...*Cell) *Set { return &Set{cells: cells} }

// Len returns the number of cells.
func (s *Set) Len() int { return len(s.cells) }

// At returns one cell. It panics if the index is out of range.
func (s *Set) At(index int) *Cell { return s.cells[index] }

// All returns the cells. The caller must not change the slice.
func (s *Set) All() []*Cell { return s.cells }

// Runners returns the runners for scripts of features, by cell.
func (s *Set) Runners() []*script.Runner {
	runners := make([]*script.Runner, len(s.cells))
	for i, c := range s.cells {
		runners[i] = c.runner
	}
	return runners
}

// OfNode returns the cell in which a node lives.
func (s *Set) OfNode(node string) *Cell { return s.cells[NodeCell(node, len(s.cells))] }

// OfJob returns the cell that a job id names; false if there is none.
func (s *Set) OfJob(id string) (*Cell, bool) {
	i, ok := JobCell(id)
	if !ok || i >= len(s.cells) {
		return nil, false
	}
	return s.cells[i], true
}

// Start lets every cell gather its calls. It does no I/O.
func (s *Set) Start(ctx context.Context) error {
	return errors.Join(s.each(func(c *Cell) error { return c.Start(ctx) })...)
}

// Stop stops every cell; see [Cell.Stop].
func (s *Set) Stop(ctx context.Context) error {
	return errors.Join(s.each(func(c *Cell) error { return c.Stop(ctx) })...)
}

// Cancel is [Cell.Cancel] in the cell where the job is. After a move that is not the cell in its
// id.
func (s *Set) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return s.act(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) { return c.Cancel(ctx, tenant, id) })
}

// Attach is [Cell.Attach] in the cell where the job is. After a move that is not the cell in its
// id.
func (s *Set) Attach(ctx context.Context, tenant, jobID, replica string) (freeslot.JobStatus, error) {
	return s.act(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) { return c.Attach(ctx, tenant, id, replica) })
}

// Job is [Cell.Job] in the cell where the job is. After a move that is not the cell in its id.
func (s *Set) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return s.read(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) { return c.Job(ctx, tenant, id) })
}

// Spec is [Cell.Spec] in the cell where the job is. After a move that is not the cell in its id.
func (s *Set) Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error) {
	c, err := s.ofJob(jobID)
	if err != nil {
		return nil, "", err
	}
	job, tenant, err := c.Spec(ctx, jobID)
	if freeslot.CodeOf(err) != freeslot.CodeNotFound {
		return job, tenant, err
	}
	// The record that a moved job leaves behind has no spec.
	at, id, failed := s.seek(ctx, c, jobID)
	if failed != nil || at == nil {
		return nil, "", cmp.Or(failed, err)
	}
	if job, tenant, err = at.Spec(ctx, id); err != nil {
		err = asked(err, jobID, id)
	}
	return job, tenant, err
}

// Drain is [Cell.Drain] in the node's cell.
func (s *Set) Drain(ctx context.Context, node string) error { return s.OfNode(node).Drain(ctx, node) }

// Undrain is [Cell.Undrain] in the node's cell.
func (s *Set) Undrain(ctx context.Context, node string) error {
	return s.OfNode(node).Undrain(ctx, node)
}

// Remove is [Cell.Deregister] in the node's cell, for a node without an agent.
func (s *Set) Remove(ctx context.Context, node string, epoch Epoch) (jobs []string, err error) {
	return s.OfNode(node).Deregister(ctx, node, epoch)
}

// MemoryUse is [Cell.MemoryUse] by cell. failed holds the cells that did not report it.
func (s *Set) MemoryUse(ctx context.Context) (shares []float64, failed map[int]error) {
	shares = make([]float64, len(s.cells))
	return shares, byCell(s.each(func(c *Cell) (err error) {
		shares[c.cfg.Index], err = c.MemoryUse(ctx)
		return err
	}))
}

// JobsByID reads the records of several jobs without their results, at most MaxPage a cell and in
// no order. It leaves out records that are gone or cannot be read, and ids of cells that do not
// exist. failed holds the cells that did not answer, so nothing is known of their jobs; nil if all
// did.
func (s *Set) JobsByID(ctx context.Context, ids []string) (jobs []freeslot.JobStatus, failed map[int]error) {
	groups := make([][]string, len(s.cells))
	for _, id := range ids {
		if c, ok := s.OfJob(id); ok {
			groups[c.cfg.Index] = append(groups[c.cfg.Index], id)
		}
	}
	found := make([][]freeslot.JobStatus, len(s.cells))
	failed = byCell(s.each(func(c *Cell) (err error) {
		found[c.cfg.Index], err = c.statuses(ctx, groups[c.cfg.Index], JobFilter{})
		return err
	}))
	for _, part := range found {
		jobs = append(jobs, part...)
	}
	return jobs, failed
}

// ofJob is OfJob, but returns an error for the client instead of false.
func (s *Set) ofJob(id string) (*Cell, error) {
	if err := ValidateJobID("job_id", id); err != nil {
		return nil, err
	}
	if c, ok := s.OfJob(id); ok {
		return c, nil
	}
	at, _ := JobCell(id)
	return nil, &freeslot.Error{
		Code: freeslot.CodeNotFound, Field: "job_id",
		Message: fmt.Sprintf("there is no job %s: its id names cell %d, and there are %d, from 0", id, at, len(s.cells)),
	}
}

// each runs f for all cells at the same time. The errors are in the order of the cells.
func (s *Set) each(f func(c *Cell) error) []error {
	if len(s.cells) == 1 {
		return []error{f(s.cells[0])}
	}
	errs := make([]error, len(s.cells))
	var calls sync.WaitGroup
	for i, c := range s.cells {
		calls.Go(func() { errs[i] = f(c) })
	}
	calls.Wait()
	return errs
}

// byCell returns the errors by cell; nil if there are none.
func byCell(errs []error) map[int]error {
	var failed map[int]error
	for i, err := range errs {
		if err == nil {
			continue
		}
		if failed == nil {
			failed = make(map[int]error)
		}
		failed[i] = err
	}
	return failed
}
