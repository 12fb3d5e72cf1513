package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/class"
)

// Queue is a class of which jobs wait, and why they may.
type Queue struct {
	cell.Queue
	Service     string
	Requirement freeslot.Requirement
	// Fits is how many nodes fit the class, PausedNodes how many of these get no jobs of it
	// because something is paused, and PausedBy is what pauses it as a whole, "" for nothing.
	// Unreadable is true where the definition is not one that this release reads: then
	// nothing is known of these, nor of the service.
	Fits, PausedNodes int
	PausedBy          string
	Unreadable        bool
}

// Paused reports whether no job of the class begins because something is paused.
func (q *Queue) Paused() bool { return q.PausedBy != "" || q.Fits > 0 && q.PausedNodes == q.Fits }

// Queues lists the classes of which jobs wait, the longest queue first, and the cells that did not
// answer. The error is a *freeslot.Error: none did.
func (d *Dispatcher) Queues(ctx context.Context) (queues []Queue, unreachable []int, err error) {
	found, failed := d.cells.Queues(ctx)
	if len(failed) == d.cells.Len() {
		return nil, nil, d.coded("list queues", errors.Join(slices.Collect(maps.Values(failed))...))
	}
	for _, q := range found {
		queues = append(queues, d.queue(q))
	}
	slices.SortStableFunc(queues, func(a, b Queue) int { return cmp.Compare(b.Waiting, a.Waiting) })
	return queues, slices.Sorted(maps.Keys(failed)), nil
}

func (d *Dispatcher) queue(q cell.Queue) Queue {
	out := Queue{Queue: q}
	var def cell.ClassDefinition
	err := json.Unmarshal([]byte(q.Definition), &def)
	if err == nil {
		err = (&freeslot.Job{Service: def.Service, Requirement: def.Requirement}).Validate("class")
	}
	if err != nil {
		out.Unreadable = true
		return out
	}
	class := d.nodes.Class(def.Service, &def.Requirement)
	out.Service, out.Requirement = def.Service, def.Requirement
	out.Fits, out.PausedNodes, out.PausedBy = class.Fits(), class.PausedNodes(), class.Paused()
	return out
}

// Held lists the limits that hold jobs back, and the cells that did not answer. The error is a
// *freeslot.Error: none did.
func (d *Dispatcher) Held(ctx context.Context) (held []cell.Held, unreachable []int, err error) {
	held, failed := d.cells.Held(ctx)
	if len(failed) == d.cells.Len() {
		return nil, nil, d.coded("list limits", errors.Join(slices.Collect(maps.Values(failed))...))
	}
	return held, slices.Sorted(maps.Keys(failed)), nil
}

// QueueLength is how many jobs of "service with requirement r" wait, which must be valid; known is
// false where a cell did not answer.
func (d *Dispatcher) QueueLength(ctx context.Context, service string, r *freeslot.Requirement) (waiting int, known bool) {
	waiting, failed := d.cells.QueueLength(ctx, class.ID(service, r))
	return waiting, len(failed) == 0
}

// Drop forgets a job that has ended; see cell.Cell.Drop. The error is a *freeslot.Error.
func (d *Dispatcher) Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cells.Drop(ctx, tenant, jobID)
	return s, d.coded("drop", err)
}
