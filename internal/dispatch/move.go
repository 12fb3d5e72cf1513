package dispatch

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	moveInterval = 250 * time.Millisecond
	// moveBatch is how many jobs of a cell one round looks at: about 500 a second, so that a move of
	// all takes no cell much of its time.
	moveBatch = 128
	// moveCalls is how many calls follow each other in one round: their batches can be smaller than asked
	// for, where records are large.
	moveCalls = 4
	// moveRests is how many rounds are left out while there is nothing to do.
	moveRests = 4
	// moveLate is how late a move has to be for a replica to look after it that does not go first.
	moveLate = 3 * time.Second
	// moveTimeout bounds one call, in which several cells may have to be waited for.
	moveTimeout = 10 * time.Second
)

// mover is what the loop remembers that has jobs move whose cell has no nodes left for them. It is
// the loop's own.
type mover struct {
	// since is from when on that has been so of a class, on the clock of Nodes.Now.
	since map[string]int64
	// fine are the lists of the classes of which that was not so: it stays as long as they do.
	fitting map[string]*selection.Class
	// from is how many of a class's queue were looked at in vain.
	skipped map[string]int
	// rests is how many rounds are still to be left out, unless there is news.
	restRounds int
	// last is when the loop came last: what it has not watched says nothing.
	ranAt int64
}

// guide is what cells are told of jobs that move.
func (d *Dispatcher) guide() *cell.Guide {
	return &cell.Guide{
		Weight: d.cfg.Weight,
		Home: func(tenant string, job *freeslot.Job) (int, bool) {
			key, keyed := cellKey(job)
			if !keyed {
				return 0, false
			}
			cells := d.cellsOf(d.nodes.Class(job.Service, &job.Requirement))
			return keyCell(&placement{request: Request{Tenant: tenant, Job: job}}, key, cells)
		},
		Gates: func(tenant string, job *freeslot.Job, cell int) []cell.Gate {
			return d.limitsOf(&Request{Tenant: tenant, Job: job}, cell)
		},
	}
}

// moveJobs has jobs that wait go to other cells where this one has no node left that fits, until Stop.
func (c *client) moveJobs() {
	c.tick(moveInterval, nil, func() {
		first := c.d.goesFirst("cell " + strconv.Itoa(c.cell.Index()))
		if c.d.cfg.MoveGrace >= 0 {
			c.beginMoves(first)
		}
		c.driveMoves(first)
	})
}

// beginMoves has jobs begin to move of classes that have been without a node for the grace.
func (c *client) beginMoves(first bool) {
	m, now := &c.mover, c.d.nodes.Now()
	grace := c.d.cfg.MoveGrace
	if !first {
		grace += moveLate // whoever goes first may be gone
	}
	if now-m.ranAt > int64(10*moveInterval) || c.d.nodes.Stale() || c.contact.lasts(now) < c.d.cfg.MoveGrace {
		m.since = nil
	}
	m.ranAt = now
	stranded, fine := make(map[string]int64), make(map[string]*selection.Class)
	left := moveBatch
	c.queues.byID.Range(func(id string, q *queue) bool {
		class := c.d.nodes.Class(q.job.Service, &q.job.Requirement)
		// homesOf remembers few classes, and to look at all nodes for each of many takes long.
		if m.fitting[id] == class || !c.stranded(q, class) {
			fine[id] = class
			return true
		}
		since, known := m.since[id]
		if !known {
			since = now
		}
		stranded[id] = since
		if now-since >= int64(grace) && left > 0 {
			left -= c.beginMove(id, q, left)
		}
		return true
	})
	m.since, m.fitting = stranded, fine
	for id := range m.skipped {
		if _, still := stranded[id]; !still {
			delete(m.skipped, id)
		}
	}
}

// stranded reports whether no node of the cell fits the class, and one of another cell does.
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

// beginMove returns how many jobs were looked at.
func (c *client) beginMove(id string, q *queue, limit int) int {
	class := c.d.nodes.Settle(q.job.Service, &q.job.Requirement)
	if !c.stranded(q, class) {
		return 0
	}
	cells := c.d.cellsOf(class)
	to, ok := cells.draw(&q.job, c.d.nodes.Skip()|c.d.outOfMemory.load()|c.d.failing.load())
	if !ok {
		return 0 // they do not answer now
	}
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	m := &c.mover
	begun, err := c.cell.BeginMoves(ctx, id, cell.Target{Cell: to, Slots: cells.slots[to]}, m.skipped[id], limit)
	if err != nil {
		c.logFailure("begin moves", err)
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

// driveMoves brings jobs that move to where they go.
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
		if err != nil && c.d.ctx.Err() == nil {
			c.moving.Failed(err)
			return
		}
		c.moving.Over()
		if !done.More {
			if done.Jobs == 0 {
				m.restRounds = moveRests + rand.IntN(2)
			}
			return
		}
	}
}

// home is the link at which somebody waits for the job that a reply is of, whose id becomes the
// one that is known there: a job that has moved has another id in this cell, of which the second
// part is the same.
func (c *client) awaitedAt(r *cell.Reply) *client {
	if len(c.d.clients) == 1 || r.Status.ID == "" {
		return c
	}
	if _, here := c.outstanding.Load(r.Status.ID); here {
		return c
	}
	for i, other := range c.d.clients {
		if other.outstanding.Size() == 0 {
			continue
		}
		if id := cell.MovedID(r.Status.ID, i); other != c {
			if _, there := other.outstanding.Load(id); there {
				r.Status.ID = id
				return other
			}
		}
	}
	return c
}

// apart divides records into those of jobs that are here, and of those that have moved or do so.
func splitMoved(jobs []freeslot.JobStatus) (here, moved []freeslot.JobStatus) {
	for i := range jobs {
		if cell.OnTheMove(jobs[i].State) {
			moved = append(moved, jobs[i])
		} else {
			here = append(here, jobs[i])
		}
	}
	return here, moved
}

// astrayPatience is how long a job is looked for whose record is gone, where another cell does not answer or says that the job
// has moved on.
const movedPatience = 30 * time.Second

// takeInAstray delivers what other cells know of jobs that were here and are gone, found thereby: of one that had moved this cell
// lost with its data only where it is.
func (c *client) deliverFromOtherCells(gone []string, found map[string]bool) {
	if len(gone) == 0 || len(c.d.clients) == 1 {
		return
	}
	jobs, errs := make([][]freeslot.JobStatus, len(c.d.clients)), make([]error, len(c.d.clients))
	var asks sync.WaitGroup
	for i, other := range c.d.clients {
		if other != c {
			asks.Go(func() { jobs[i], errs[i] = other.readMoved(gone) })
		}
	}
	asks.Wait()
	unsure := make(map[string]bool)
	for i, other := range c.d.clients {
		if errs[i] != nil {
			for _, id := range gone {
				unsure[id] = true
			}
		}
		for _, s := range jobs[i] {
			id := cell.MovedID(s.ID, c.cell.Index())
			if cell.OnTheMove(s.State) {
				unsure[id] = true
				continue
			}
			found[id] = true
			other.deliverMoved(id, &s, c)
		}
	}
	for id := range unsure {
		if !found[id] && c.missingFor(id) < movedPatience {
			found[id] = true
			c.recheckSoon(id)
		}
	}
}

// astray reads the records that this cell has of jobs of another one.
func (c *client) readMoved(ids []string) ([]freeslot.JobStatus, error) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	there := make([]string, len(ids))
	for i, id := range ids {
		there[i] = cell.MovedID(id, c.cell.Index())
	}
	jobs, err := c.cell.JobsByID(ctx, there)
	if err != nil && c.d.ctx.Err() == nil {
		c.sampled.Warn("outstanding.recheck_failed", zap.Int("jobs", len(ids)), zap.Error(err))
	}
	return jobs, err
}

// tellAstray delivers what this cell's record of a job says to who waits for it at home, by its id there.
func (c *client) deliverMoved(id string, s *freeslot.JobStatus, home *client) {
	home.recordFound(id)
	switch {
	case s.State.Terminal():
		ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
		defer cancel()
		whole, err := c.cell.Job(ctx, "", cell.MovedID(id, c.cell.Index()))
		if err == nil && whole.State.Terminal() { // else the next recheck
			whole.ID = id
			home.deliverEnd(whole)
		}
	case s.Node != "":
		s.ID = id
		home.deliverAttempt(s)
	}
}

// elsewhere reads on about outstanding jobs of which the records send on. unknown are those of which
// nothing could be read.
func (c *client) readElsewhere(moved []freeslot.JobStatus) (found []freeslot.JobStatus, unknown map[string]bool) {
	if len(moved) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	ids := make([]string, len(moved))
	for i := range moved {
		ids[i] = moved[i].ID
	}
	return c.d.cells.Elsewhere(ctx, ids)
}
