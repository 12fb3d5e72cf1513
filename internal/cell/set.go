package cell

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Set holds all cells of a system, in the order of their indexes. It never changes, except for its
// guide, and is safe for concurrent use. Its methods ask the cells at the same time, so a cell that
// does not answer does not delay the others.
type Set struct {
	cells []*Cell
	guide atomic.Pointer[Guide]
	// owners is as in SetOwners.
	owners atomic.Pointer[func(cell int) (nodes []string, ok bool)]
}

// Guide tells the move code what it needs to know about a job. Each field may be nil. The functions
// must not block.
type Guide struct {
	// Weight returns a tenant's share of the slots. Without it every tenant has 1.
	Weight func(tenant string) int
	// Home returns the cell of a job with a key that decides on it; false if it has no such key or
	// the cell is not known yet.
	Home func(tenant string, job *freeslot.Job) (cell int, ok bool)
	// Limits returns a job's limits in a cell.
	Limits func(tenant string, job *freeslot.Job, cell int) []Limit
}

// NewSet returns a set of at least one cell. The index of each cell must be its place.
func NewSet(cells ...*Cell) *Set { return &Set{cells: cells} }

// SetGuide sets the guide. It is nil at first, and may be nil.
func (s *Set) SetGuide(g *Guide) { s.guide.Store(g) }

// SetOwners sets what returns the nodes of a cell that may own jobs, in any order; false if that is
// not known. A listing asks these nodes alone. Without it, a listing asks all nodes. It must not
// block.
func (s *Set) SetOwners(owners func(cell int) (nodes []string, ok bool)) { s.owners.Store(&owners) }

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
