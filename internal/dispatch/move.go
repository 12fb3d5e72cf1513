package dispatch

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	moveInterval = 250 * time.Millisecond
	// moveBatch is how many jobs of a cell one round looks at: about 500 a second, so that moving a
	// whole queue takes little of a cell's time.
	moveBatch = 128
	// moveCalls is how many calls of one round follow each other. If records are large, a call
	// moves fewer than moveBatch.
	moveCalls = 4
	// moveRestRounds is how many rounds are skipped while there is nothing to do.
	moveRestRounds = 4
	// moveLate is how late a move must be before a replica that does not go first drives it.
	moveLate = 3 * time.Second
	// moveTimeout bounds one call, which may wait for several cells.
	moveTimeout = 10 * time.Second
)

// mover is the state of the moveJobs loop.
type mover struct {
	// since holds the time since which a class has been stranded, by the clock of Nodes.Now.
	since map[string]int64
	// fitting holds the classes that were not stranded. That stays true as long as the class is the
	// same.
	fitting map[string]*selection.Class
	// skipped counts the jobs at the head of each queue that did not move.
	skipped map[string]int
	// restRounds is how many rounds are still skipped, unless a move begins.
	restRounds int
	// ranAt is the time at which the loop last ran. A gap means that the fleet was not watched.
	ranAt int64
}

// guide returns what cells need to know about moving jobs.
func (d *Dispatcher) guide() *cell.Guide {
	return &cell.Guide{
		Weight: d.cfg.Weight,
		Home: func(tenant string, job *freeslot.Job) (int, bool) {
			key, ok := cellKey(job)
			if !ok {
				return 0, false
			}
			return d.cellsOf(d.nodes.Class(job.Service, &job.Requirement)).keyCell(tenant, key, job)
		},
		Limits: func(tenant string, job *freeslot.Job, cell int) []cell.Limit {
			return d.limitsOf(&Request{Tenant: tenant, Job: job}, cell)
		},
	}
}

// moveJobs is the loop that moves waiting jobs to other cells once no node of this cell fits them.
func (c *client) moveJobs() {
	c.tick(moveInterval, nil, func() {
		first := c.d.goesFirst("cell " + strconv.Itoa(c.cell.Index()))
		if c.d.cfg.MoveGrace >= 0 {
			c.beginMoves(first)
		}
		c.driveMoves(first)
	})
}

// beginMoves starts to move jobs of classes that have been stranded for the grace.
func (c *client) beginMoves(first bool) {
	m, now := &c.mover, c.d.nodes.Now()
	grace := c.d.cfg.MoveGrace
	if !first {
		grace += moveLate // the replica that goes first may be gone
	}
	if now-m.ranAt > int64(10*moveInterval) || c.d.nodes.Stale() ||
		c.contact.lasts(now, c.contactGap()) < c.d.cfg.MoveGrace {
		m.since = nil
	}
	m.ranAt = now
	since, fitting := make(map[string]int64), make(map[string]*selection.Class)
	left := moveBatch
	c.queues.byID.Range(func(id string, q *queue) bool {
		class := c.d.nodes.Class(q.job.Service, &q.job.Requirement)
		// Without m.fitting, many classes would look at all nodes in each round: cellsOf remembers
		// only some classes.
		if m.fitting[id] == class || !c.stranded(q, class) {
			fitting[id] = class
			return true
		}
		at, known := m.since[id]
		if !known {
			at = now
		}
		since[id] = at
		if now-at >= int64(grace) && left > 0 {
			left -= c.beginMove(id, q, left)
		}
		return true
	})
	m.since, m.fitting = since, fitting
	for id := range m.skipped {
		if _, still := since[id]; !still {
			delete(m.skipped, id)
		}
	}
}

// stranded reports whether no node of this cell fits the class, but a node of another cell does.
func (c *client) stranded(q *queue, class *selection.Class) bool {
	cells := c.d.cellsOf(class)
	if cells.nodes[c.cell.Index()] > 0 {
		return false
	}
	for i := range cells.nodes {
		if cells.takes(i, &q.job, 0) {
			return true
		}
	}
	return false
}

// beginMove starts to move jobs of one class, and returns how many jobs it looked at.
func (c *client) beginMove(id string, q *queue, limit int) int {
	class := c.d.nodes.Settle(q.job.Service, &q.job.Requirement)
	if !c.stranded(q, class) {
		return 0
	}
	cells := c.d.cellsOf(class)
	to, ok := cells.draw(&q.job, c.d.nodes.Skip()|c.d.outOfMemory.load()|c.d.failing.load())
	if !ok {
		return 0 // no such cell answers now
	}
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	m := &c.mover
	begun, err := c.cell.BeginMoves(ctx, id, cell.Target{Cell: to, Slots: cells.slots[to]}, m.skipped[id], limit)
	if err != nil {
		logFailure(c.sampled, "begin moves", err)
		return 0
	}
	if m.skipped == nil {
		m.skipped = make(map[string]int)
	}
	if m.skipped[id] += begun.Stayed; !begun.More {
		delete(m.skipped, id)
	}
	if begun.Jobs > 0 {
		m.restRounds = 0
	}
	return begun.Jobs + begun.Stayed
}

// driveMoves brings moving jobs to their new cells.
func (c *client) driveMoves(first bool) {
	m := &c.mover
	if m.restRounds > 0 {
		m.restRounds--
		return
	}
	late := moveLate
	if first {
		late = 0
	}
	for range moveCalls {
		ctx, cancel := context.WithTimeout(c.d.ctx, moveTimeout)
		done, err := c.d.cells.DriveMoves(ctx, c.cell, late, moveBatch)
		cancel()
		c.metrics.moved.Add(float64(done.Jobs))
		for _, i := range done.Cells {
			c.d.clients[i].wakeSweep()
		}
		if !c.succeeded(c.moving, err) {
			return
		}
		if !done.More {
			if done.Jobs == 0 {
				m.restRounds = moveRestRounds + rand.IntN(2)
			}
			return
		}
	}
}
