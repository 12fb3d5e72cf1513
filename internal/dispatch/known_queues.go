package dispatch

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// queue is a class that has waiting jobs in a cell, or had some a moment ago.
type queue struct {
	// job has only the service and the requirement.
	job freeslot.Job
	// hasWaiting is true while the next job of the class would wait behind others. That job is then
	// enqueued without being offered to nodes first. It is a hint.
	hasWaiting atomic.Bool
	// newsAt is the value of queues.reads when this replica last heard of waiting jobs.
	newsAt atomic.Uint64
}

// fullReadInterval is the interval at which all classes are read even if their revision is the
// known one. A server that came back without its last writes uses revisions a second time.
const fullReadInterval = 10 * time.Second

// queues holds the classes of a cell with waiting jobs, as far as this replica knows. It learns of
// its own jobs at once, and of all others by reading the queues in each sweep.
type queues struct {
	byID *xsync.MapOf[string, *queue]
	// reads counts the reads of the queues. News after a read began may be newer than its answer,
	// so the answer does not remove such a queue.
	reads atomic.Uint64
	// changed is true if this replica changed byID since the last read. The set may then differ
	// from its revision, so all classes are read.
	changed atomic.Bool
	// revision came with the last answer. fullReadAt is the time at which all classes were last
	// read, by the clock of Nodes.Now. Only sweepQueues uses both.
	revision   uint64
	fullReadAt int64
	// configMu is held while a configuration is announced to the cell. It guards config, the last
	// configuration that was announced.
	configMu sync.Mutex
	config   *selection.Config
}

// noteWaiting records that jobs of the class wait in the cell.
func (c *client) noteWaiting(class *selection.Class, job *freeslot.Job) {
	q, known := c.queues.byID.Load(class.ID())
	if !known {
		fresh := &queue{job: freeslot.Job{Service: job.Service, Requirement: job.Requirement.Clone()}}
		fresh.newsAt.Store(c.queues.reads.Load())
		q, known = c.queues.byID.LoadOrStore(class.ID(), fresh)
	}
	if reads := c.queues.reads.Load(); q.newsAt.Load() != reads || !known {
		q.newsAt.Store(reads)
		c.queues.changed.Store(true)
	}
	q.hasWaiting.Store(true)
	if !known {
		c.wakeSweep() // a slot may have become free before the queue was known
	}
}

// noteServed records that a job of the class got its slot at once: none waited before it.
func (c *client) noteServed(class *selection.Class) {
	if q, known := c.queues.byID.Load(class.ID()); known {
		q.hasWaiting.Store(false)
	}
}

// waitingCells returns the cells in which a job of the class would wait behind others.
func (d *Dispatcher) waitingCells(class *selection.Class) (cells selection.CellMask) {
	for i, c := range d.clients {
		if q, known := c.queues.byID.Load(class.ID()); known && q.hasWaiting.Load() {
			cells = cells.With(i)
		}
	}
	return cells
}

// classPaused reports whether the class with this id, which has waiting jobs, is paused as a whole.
// It returns false for a class that this replica does not know yet.
func (d *Dispatcher) classPaused(class string) bool {
	for _, c := range d.clients {
		if q, known := c.queues.byID.Load(class); known {
			return d.nodes.Class(q.job.Service, &q.job.Requirement).Paused() != ""
		}
	}
	return false
}

// readQueues updates the queues from the cell.
func (c *client) readQueues(ctx context.Context) error {
	qs := &c.queues
	read := qs.reads.Add(1)
	known, now := qs.revision, c.d.nodes.Now()
	if qs.changed.Swap(false) || now-qs.fullReadAt >= int64(fullReadInterval) {
		known = 0
	}
	w, err := c.cell.Waiting(ctx, known)
	if err != nil {
		qs.changed.Store(true)
		return err
	}
	if w.Same {
		return nil
	}
	qs.revision, qs.fullReadAt = w.Revision, now
	listed := make(map[string]bool, len(w.Classes))
	for _, class := range w.Classes {
		listed[class.ID] = true
		c.addQueue(class)
	}
	qs.byID.Range(func(id string, q *queue) bool {
		if !listed[id] && q.newsAt.Load() < read {
			qs.byID.Delete(id)
		}
		return true
	})
	return nil
}

// addQueue adds a class whose jobs another replica enqueued.
func (c *client) addQueue(class cell.Class) {
	if _, known := c.queues.byID.Load(class.ID); known {
		return
	}
	job, err := decodeClass(class.Definition)
	if err != nil {
		c.sampled.Warn("queue.unreadable", zap.String("class", class.ID), zap.Error(err))
		return
	}
	q := &queue{job: job}
	q.hasWaiting.Store(true)
	c.queues.byID.LoadOrStore(class.ID, q)
}

// decodeClass returns a job with the service and the requirement of a class.
func decodeClass(definition string) (freeslot.Job, error) {
	var def cell.ClassDefinition
	if err := json.Unmarshal([]byte(definition), &def); err != nil {
		return freeslot.Job{}, err
	}
	job := freeslot.Job{Service: def.Service, Requirement: def.Requirement}
	return job, job.Validate("class")
}
