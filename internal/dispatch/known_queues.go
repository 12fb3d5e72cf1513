package dispatch

import (
	"context"
	"encoding/json"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// queue is a class of which jobs wait in a cell, or did a moment ago.
type queue struct {
	// job has the service and the requirement, and nothing else.
	job freeslot.Job
	// straight is true while the next job of the class would stand behind others: it is
	// enqueued without being offered to nodes first. It is a hint.
	hasWaiting atomic.Bool
	// turn is that of the last news that jobs wait; see queues.
	newsAt atomic.Uint64
}

// wholeEvery is how often all classes are read although their revision is the known one: a
// server that came back without its last writes gives revisions a second time.
const fullReadInterval = 10 * time.Second

// queues are the classes of a cell with jobs that wait, as far as this replica knows. It
// learns of them by its own jobs at once, and of all others by asking once a sweep.
type queues struct {
	byID *xsync.MapOf[string, *queue]
	// turn counts the times that Redis was asked: news that came since the last question
	// went out may be newer than its answer, which does not drop them.
	reads atomic.Uint64
	// noted is true when there were news of our own since. The set of classes can then
	// differ from what its revision says, so all of it is read.
	changed atomic.Bool
	// revision is that of the last answer; wholeAt is when all classes were read last, on
	// the clock of Nodes.Now. Owned by the sweep.
	revision   uint64
	fullReadAt int64
	// telling is held while the cell is told of a configuration, and guards told, the last one
	// that it was told of.
	configMu sync.Mutex
	config   *selection.Config
}

// waits takes in that jobs of the class wait in the cell.
func (c *client) noteWaiting(class *selection.Class, job *freeslot.Job) {
	q, known := c.queues.byID.Load(class.ID())
	if !known {
		fresh := &queue{job: freeslot.Job{Service: job.Service, Requirement: job.Requirement.Clone()}}
		fresh.newsAt.Store(c.queues.reads.Load())
		q, known = c.queues.byID.LoadOrStore(class.ID(), fresh)
	}
	if turn := c.queues.reads.Load(); q.newsAt.Load() != turn || !known {
		q.newsAt.Store(turn)
		c.queues.changed.Store(true)
	}
	if !q.hasWaiting.Load() {
		q.hasWaiting.Store(true)
	}
	c.d.queued.set(c.cell.Index(), true)
	if !known {
		c.wakeSweep() // a slot may have become free before it was known that somebody waits
	}
}

// served takes in that a job of the class got its slot at once: nobody was before it.
func (c *client) noteServed(class *selection.Class) {
	if !c.d.queued.load().Has(c.cell.Index()) {
		return
	}
	if q, known := c.queues.byID.Load(class.ID()); known {
		q.hasWaiting.Store(false)
	}
}

// behind are the cells in which a job of the class would stand behind others.
func (d *Dispatcher) waitingCells(class *selection.Class) (cells selection.CellMask) {
	for rest := uint64(d.queued.load()); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		if q, known := d.clients[i].queues.byID.Load(class.ID()); known && q.hasWaiting.Load() {
			cells = cells.With(i)
		}
	}
	return cells
}

// pauses reports whether the class with this id, of which jobs wait, is paused as a whole, as far as this replica
// knows the class: one that others enqueued a moment ago it may not.
func (d *Dispatcher) classPaused(class string) bool {
	for _, c := range d.clients {
		if q, known := c.queues.byID.Load(class); known {
			return d.nodes.Class(q.job.Service, &q.job.Requirement).Paused() != ""
		}
	}
	return false
}

// list brings the classes up to date.
func (c *client) readQueues(ctx context.Context) error {
	qs := &c.queues
	asked := qs.reads.Add(1)
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
		if !listed[id] && q.newsAt.Load() < asked {
			qs.byID.Delete(id)
		}
		return true
	})
	// In this order: a class that comes in between sets it again, or is seen.
	c.d.queued.set(c.cell.Index(), false)
	if qs.byID.Size() > 0 {
		c.d.queued.set(c.cell.Index(), true)
	}
	return nil
}

// learn takes in a class that another replica enqueued jobs of.
func (c *client) addQueue(class cell.Class) {
	if _, known := c.queues.byID.Load(class.ID); known {
		return
	}
	var def cell.ClassDefinition
	err := json.Unmarshal([]byte(class.Definition), &def)
	q := &queue{job: freeslot.Job{Service: def.Service, Requirement: def.Requirement}}
	if err == nil {
		err = q.job.Validate("class")
	}
	if err != nil {
		c.sampled.Warn("queue.unreadable", zap.String("class", class.ID), zap.Error(err))
		return
	}
	q.hasWaiting.Store(true)
	c.queues.byID.LoadOrStore(class.ID, q)
}
