package dispatch

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	moveInterval = 250 * time.Millisecond
	// moveRest is the least time between two rounds: each node that becomes free may wake the mover.
	moveRest = 100 * time.Millisecond
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

// mover is the loop that moves waiting jobs to other cells once no node of this cell fits them.
type mover struct {
	*cellClient
	outage *logging.Outage
	// since holds the time since which a class has been stranded, by the clock of Nodes.Now.
	since map[string]int64
	// fitting holds the classes that were not stranded. That stays true as long as the class is the
	// same. While a class is stranded because its first node came elsewhere, it is as before that.
	fitting map[string]*selection.Class
	// skipped counts the jobs at the head of each queue that did not move.
	skipped map[string]int
	// restRounds is how many rounds are still skipped, unless a move begins.
	restRounds int
	// ranAt is the time at which the loop last ran. A gap means that the fleet was not watched.
	ranAt int64
}

func newMover(c *cellClient) *mover {
	return &mover{
		cellClient: c, outage: logging.NewOutage(c.log, "jobs.move_failed", "jobs.move_again"),
		skipped: make(map[string]int),
	}
}

func (m *mover) run() {
	if len(m.d.byCell) > 1 {
		m.d.tick(moveInterval-moveRest, m.moves, func() {
			m.runOnce()
			sleep(m.d.ctx, moveRest)
		})
	}
}

func (m *mover) runOnce() {
	first := m.d.goesFirst("cell " + strconv.Itoa(m.cell.Index()))
	if m.d.cfg.MoveGrace >= 0 {
		m.beginMoves(first)
	}
	m.driveMoves(first)
}

// beginMoves starts to move jobs of classes that have been stranded for the grace.
func (m *mover) beginMoves(first bool) {
	now := m.d.nodes.Now()
	grace := m.d.cfg.MoveGrace
	if !first {
		grace += moveLate // the replica that goes first may be gone
	}
	unwatched := now-m.ranAt > int64(10*moveInterval) || m.d.nodes.Stale() ||
		m.contact.lasts(now, m.contactGap()) < m.d.cfg.MoveGrace
	if unwatched {
		m.since = nil
	}
	m.ranAt = now
	since, fitting := make(map[string]int64), make(map[string]*selection.Class)
	left, unfit := moveBatch, false
	m.queues.byID.Range(func(id string, q *queue) bool {
		class := m.d.nodes.Class(q.job.Service, &q.job.Requirement)
		// Without m.fitting, many classes would look at all nodes in each round: classCells remembers
		// only some classes.
		before := m.fitting[id]
		if before == class || !m.stranded(q, class) {
			fitting[id] = class
			if class.Fits() == 0 {
				unfit = true
			} else {
				q.unfit.Store(false)
			}
			return true
		}
		at, known := m.since[id]
		if !known {
			at = now
		}
		came := before != nil && before.Fits() == 0
		if came {
			fitting[id] = before // the next round must know it, too, if this one is late
		}
		// The grace is for a node that comes back. Here the first node of the class has come.
		if !unwatched && (came || q.unfit.Load()) {
			at = min(at, now-int64(m.d.cfg.MoveGrace))
		}
		since[id] = at
		if now-at >= int64(grace) && left > 0 {
			left -= m.beginMove(id, q, left)
		}
		return true
	})
	m.since, m.fitting = since, fitting
	m.unfit.Store(unfit)
	for id := range m.skipped {
		if _, still := since[id]; !still {
			delete(m.skipped, id)
		}
	}
}

// stranded reports whether no node of this cell fits the class, but a node of another cell does.
func (m *mover) stranded(q *queue, class *selection.Class) bool {
	cells := m.d.classCells.of(class)
	if cells.nodes[m.cell.Index()] > 0 {
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
func (m *mover) beginMove(id string, q *queue, limit int) int {
	class := m.d.nodes.Settle(q.job.Service, &q.job.Requirement)
	if !m.stranded(q, class) {
		return 0
	}
	cells := m.d.classCells.of(class)
	to, ok := cells.draw(&q.job, m.d.nodes.Skip()|m.d.outOfMemory.load()|m.d.failing.load())
	if !ok {
		return 0 // no such cell answers now
	}
	ctx, cancel := m.d.timeout()
	defer cancel()
	begun, err := m.cell.BeginMoves(ctx, id, cell.Target{Cell: to, Slots: cells.slots[to]}, m.skipped[id], limit)
	if err != nil {
		logFailure(m.sampled, "begin moves", err)
		return 0
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
func (m *mover) driveMoves(first bool) {
	if m.restRounds > 0 {
		m.restRounds--
		return
	}
	late := moveLate
	if first {
		late = 0
	}
	for range moveCalls {
		ctx, cancel := context.WithTimeout(m.d.ctx, moveTimeout)
		done, err := m.d.cells.DriveMoves(ctx, m.cell, late, moveBatch)
		cancel()
		m.metrics.moved.Add(float64(done.Jobs))
		for _, i := range done.Cells {
			m.d.byCell[i].wakeSweep()
		}
		if !m.succeeded(m.outage, err) {
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
