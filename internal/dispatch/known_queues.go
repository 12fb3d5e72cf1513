package dispatch

import (
	"context"
	"encoding/json"
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
	// by is the tenant whose job made the queue, if it came by this replica.
	by string
	// hasWaiting is true while the next job of the class would wait behind others. That job is then
	// enqueued without being offered to nodes first. It is a hint.
	hasWaiting atomic.Bool
	// unfit is true if no node of any cell fitted when this replica last noted a waiting job, and none
	// has since.
	unfit atomic.Bool
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
	// read, by the clock of Nodes.Now. Only the sweeper uses both.
	revision   uint64
	fullReadAt int64
}

// noteWaiting records that jobs of the class wait in the cell. It reports whether the class is new
// here: a slot may then have become free before the queue was known.
func (qs *queues) noteWaiting(class *selection.Class, job *freeslot.Job, tenant string) (fresh bool) {
	q, known := qs.byID.Load(class.ID())
	if !known {
		fresh := &queue{by: tenant, job: freeslot.Job{Service: job.Service, Requirement: job.Requirement.Clone()}}
		fresh.newsAt.Store(qs.reads.Load())
		q, known = qs.byID.LoadOrStore(class.ID(), fresh)
	}
	if reads := qs.reads.Load(); q.newsAt.Load() != reads || !known {
		q.newsAt.Store(reads)
		qs.changed.Store(true)
	}
	q.hasWaiting.Store(true)
	if unfit := class.Fits() == 0; q.unfit.Load() != unfit {
		q.unfit.Store(unfit)
	}
	return !known
}

// madeBy returns how many queues jobs of the tenant have made by this replica.
func (qs *queues) madeBy(tenant string) (n int) {
	qs.byID.Range(func(_ string, q *queue) bool {
		if q.by == tenant {
			n++
		}
		return true
	})
	return n
}

// noteServed records that a job of the class got its slot at once: none waited before it.
func (qs *queues) noteServed(class *selection.Class) {
	if q, known := qs.byID.Load(class.ID()); known {
		q.hasWaiting.Store(false)
	}
}

// read updates the queues from their cell.
func (qs *queues) read(ctx context.Context, of *cell.Cell, now int64, log *zap.Logger) error {
	read := qs.reads.Add(1)
	known := qs.revision
	if qs.changed.Swap(false) || now-qs.fullReadAt >= int64(fullReadInterval) {
		known = 0
	}
	w, err := of.Waiting(ctx, known)
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
		qs.add(class, log)
	}
	qs.byID.Range(func(id string, q *queue) bool {
		if !listed[id] && q.newsAt.Load() < read {
			qs.byID.Delete(id)
		}
		return true
	})
	return nil
}

// add adds a class whose jobs another replica enqueued.
func (qs *queues) add(class cell.Class, log *zap.Logger) {
	if _, known := qs.byID.Load(class.ID); known {
		return
	}
	job, err := decodeClass(class.Definition)
	if err != nil {
		log.Warn("queue.unreadable", zap.String("class", class.ID), zap.Error(err))
		return
	}
	q := &queue{job: job}
	q.hasWaiting.Store(true)
	qs.byID.LoadOrStore(class.ID, q)
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
