package dispatch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/class"
)

// Queue is a class with waiting jobs. It says why they may wait.
type Queue struct {
	cell.Queue
	Service     string
	Requirement freeslot.Requirement
	// Fits is how many nodes fit the class. PausedNodes is how many of them get none of its jobs
	// because of a pause. PausedBy names the pause of the whole class; "" means none.
	Fits, PausedNodes int
	PausedBy          string
	// Expected lists the pools whose nodes will fit jobs of one slot, if no node fits.
	Expected []string
	// Unreadable is true if this release cannot read the class's definition. The fields above are
	// then zero.
	Unreadable bool
}

// Paused reports whether no job of the class begins because of a pause.
func (q *Queue) Paused() bool { return q.PausedBy != "" || q.Fits > 0 && q.PausedNodes == q.Fits }

// Queues lists the classes with waiting jobs, the longest queue first, and the cells that did not
// answer. If no cell answered, it returns a *freeslot.Error.
func (d *Dispatcher) Queues(ctx context.Context) (queues []Queue, unreachable []int, err error) {
	found, failed := d.cells.Queues(ctx)
	if err := d.allFailed("list queues", failed); err != nil {
		return nil, nil, err
	}
	for _, q := range found {
		queues = append(queues, d.queue(q))
	}
	slices.SortStableFunc(queues, func(a, b Queue) int { return cmp.Compare(b.Waiting, a.Waiting) })
	return queues, slices.Sorted(maps.Keys(failed)), nil
}

func (d *Dispatcher) queue(q cell.Queue) Queue {
	job, err := decodeClass(q.Definition)
	if err != nil {
		return Queue{Queue: q, Unreadable: true}
	}
	class := d.nodes.Class(job.Service, &job.Requirement)
	out := Queue{
		Queue: q, Service: job.Service, Requirement: job.Requirement,
		Fits: class.Fits(), PausedNodes: class.PausedNodes(), PausedBy: class.Paused(),
	}
	if out.Fits == 0 {
		for _, e := range d.nodes.Config().Expecting(job.Service, &job.Requirement, 1) {
			out.Expected = append(out.Expected, e.Pool)
		}
	}
	return out
}

// FullLimits lists the limits that hold jobs back, and the cells that did not answer. If no cell
// answered, it returns a *freeslot.Error.
func (d *Dispatcher) FullLimits(ctx context.Context) (full []cell.FullLimit, unreachable []int, err error) {
	full, failed := d.cells.FullLimits(ctx)
	if err := d.allFailed("list limits", failed); err != nil {
		return nil, nil, err
	}
	return full, slices.Sorted(maps.Keys(failed)), nil
}

// allFailed returns the error of an operation that failed in every cell.
func (d *Dispatcher) allFailed(what string, failed map[int]error) error {
	if len(failed) < d.cells.Len() {
		return nil
	}
	return d.coded(what, errors.Join(slices.Collect(maps.Values(failed))...))
}

// QueueLength returns how many jobs of "service with requirement r" wait. r must be valid. known is
// false if a cell did not answer.
func (d *Dispatcher) QueueLength(
	ctx context.Context, service string, r *freeslot.Requirement,
) (waiting int, known bool) {
	waiting, failed := d.cells.QueueLength(ctx, class.ID(service, r))
	return waiting, len(failed) == 0
}
