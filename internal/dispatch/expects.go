package dispatch

import (
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// This file lets jobs wait for nodes that do not run yet, because a pool expects them.

// expectedWait returns how long the job may wait for the first node that fits: the longest time
// that a pool with such nodes allows; 0 if no pool expects one.
func (d *Dispatcher) expectedWait(job *freeslot.Job) (wait time.Duration) {
	for _, e := range d.nodes.Config().Expecting(job.Service, &job.Requirement, job.SlotCount()) {
		wait = max(wait, e.Wait)
	}
	return wait
}

// anyCell stands for the cells of a class without nodes: the first node can come to each of them.
func anyCell(cells int) *classCells {
	c := &classCells{nodes: make([]int, cells), slots: make([]int, cells)}
	for i := range cells {
		c.nodes[i], c.slots[i] = 1, freeslot.MaxSlots
	}
	return c
}

// judge decides about jobs that have waited for a node as long as they may. It leaves out jobs
// about which this replica cannot be sure. They are due again soon, at any replica.
func (l *dueJobs) judge(unplaced []cell.Unplaced) (judged []cell.Judged) {
	if len(unplaced) == 0 || !l.d.knowsFleet() {
		return nil
	}
	type answer struct{ fits, sure bool }
	known := make(map[string]answer) // by class and slots
	for _, u := range unplaced {
		kind := u.Class.ID + " " + strconv.Itoa(u.Slots)
		a, asked := known[kind]
		if !asked {
			a.fits, a.sure = l.fits(&u)
			known[kind] = a
		}
		if a.sure {
			judged = append(judged, cell.Judged{JobID: u.JobID, Fits: a.fits})
		}
	}
	return judged
}

// fits reports whether a node could run the job. Without one, it is not sure while such a node may
// come back.
func (l *dueJobs) fits(u *cell.Unplaced) (fits, sure bool) {
	job, err := decodeClass(u.Class.Definition)
	if err != nil {
		l.sampled.Warn("queue.unreadable", zap.String("class", u.Class.ID), zap.Error(err))
		return false, false
	}
	job.Slots = u.Slots
	there := func() bool { return couldRun(l.d.nodes.Settle(job.Service, &job.Requirement), &job) }
	switch {
	case there():
		return true, true
	case l.d.nodes.MayReturn(&job):
		return false, false
	default:
		return there(), true // a node may have come back between the two looks
	}
}

// knowsFleet reports whether the cache has every node that can take jobs.
func (d *Dispatcher) knowsFleet() bool {
	refusing, _ := d.refusing()
	return refusing == 0 && !d.nodes.Stale() && d.nodes.Skip()|d.failing.load() == 0
}

// waitsForPool returns the pool whose next node a waiting job needs; "" if a node fits, if no pool
// expects one, or if this replica does not know the class yet.
func (d *Dispatcher) waitsForPool(s *freeslot.JobStatus) string {
	q := d.knownQueue(s.Class)
	if q == nil {
		return ""
	}
	job := freeslot.Job{Service: q.job.Service, Requirement: q.job.Requirement, Slots: s.Slots}
	if couldRun(d.nodes.Class(job.Service, &job.Requirement), &job) {
		return ""
	}
	for _, e := range d.nodes.Config().Expecting(job.Service, &job.Requirement, job.SlotCount()) {
		return e.Pool
	}
	return ""
}

// knownQueue returns the queue of a class in any cell; nil if this replica does not know it yet.
func (d *Dispatcher) knownQueue(class string) *queue {
	for _, c := range d.byCell {
		if q, known := c.queues.byID.Load(class); known {
			return q
		}
	}
	return nil
}

// wakeMovers is called when a node can take jobs. Jobs that no node fitted may wait in other cells.
func (d *Dispatcher) wakeMovers(n *selection.Node) {
	for _, c := range d.byCell {
		if c.cell.Index() != n.Cell() && c.unfit.Load() {
			select {
			case c.moves <- struct{}{}:
			default:
			}
		}
	}
}
