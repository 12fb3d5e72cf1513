package dispatch

import (
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

// DueWithin is how far ahead a KindBacklog looks.
const DueWithin = time.Minute

// KindBacklog counts the jobs of one kind that wait, or will within DueWithin.
type KindBacklog struct {
	// Waiting counts the jobs that wait for a slot. Paused of them begin on no node because of a
	// pause.
	Waiting, Paused int
	// OldestMS is when the oldest of those that are not paused was submitted, in milliseconds since
	// 1970; 0 without one.
	OldestMS int64
	// Due counts the jobs for later, and the jobs in a pause before their next attempt, whose time
	// comes within DueWithin. DueSlots adds up their slots.
	Due, DueSlots int
}

func (b KindBacklog) plus(o KindBacklog) KindBacklog {
	if b.OldestMS == 0 || o.OldestMS != 0 && o.OldestMS < b.OldestMS {
		b.OldestMS = o.OldestMS
	}
	b.Waiting, b.Paused = b.Waiting+o.Waiting, b.Paused+o.Paused
	b.Due, b.DueSlots = b.Due+o.Due, b.DueSlots+o.DueSlots
	return b
}

// byKind divides the jobs that wait, and those that will, by their kind. It leaves out classes that
// this release cannot read.
func (b *backlog) byKind(queues []cell.Queue, due []cell.DueQueue) map[Kind]KindBacklog {
	kinds := make(map[Kind]KindBacklog)
	add := func(of cell.Class, n KindBacklog) {
		job, readable := b.jobOf(of)
		if !readable {
			return
		}
		class := b.d.nodes.Class(job.Service, &job.Requirement)
		if class.Paused() != "" || class.Fits() > 0 && class.PausedNodes() == class.Fits() {
			n = KindBacklog{Waiting: n.Waiting, Paused: n.Waiting}
		}
		k := Kind{Pool: class.Pool(), Service: job.Service}
		kinds[k] = kinds[k].plus(n)
	}
	for i := range queues {
		add(queues[i].Class, KindBacklog{Waiting: queues[i].Waiting, OldestMS: queues[i].OldestMS})
	}
	for i := range due {
		add(due[i].Class, KindBacklog{Due: due[i].Jobs, DueSlots: due[i].Slots})
	}
	return kinds
}

// KindBacklogs returns the jobs that wait, and those that will, in all cells that answer, and the
// other cells. It asks no one; the counts are some seconds old. Kinds without such jobs are absent.
func (d *Dispatcher) KindBacklogs() (all map[Kind]KindBacklog, unreachable []int) {
	all = make(map[Kind]KindBacklog)
	for i, c := range d.byCell {
		count := c.backlog.Load()
		if count == nil {
			unreachable = append(unreachable, i)
			continue
		}
		for k, n := range count.kinds {
			all[k] = all[k].plus(n)
		}
	}
	return all, unreachable
}
