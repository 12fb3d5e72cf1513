package dispatch

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// stand picks the cell in whose queue the job is to wait, and candidates there: the free
// slots of these go to the first in the queue, this job perhaps, in the same call. So
// completions that the cache has not heard of yet, or will not because another replica's
// jobs complete, are found at no extra cost. search is for nodes that seem to be free.
func (d *Dispatcher) chooseQueue(p *placement, search bool) error {
	p.enqueue = true
	cells := d.cellsOf(p.class)
	q := &p.query
	q.Skip, q.IgnoreFull, q.Want, q.Exclude = d.skip(p), false, d.cfg.Candidates, nil
	if p.client != nil && cells.takes(p.client.cell.Index(), p.request.Job, q.Skip) {
		q.Skip |= selection.Only(p.client.cell.Index())
	}
	p.candidates = nil
	fixed := d.runCell(p)
	if key, keyed := cellKey(p.request.Job); keyed && fixed == nil {
		home, ok := keyCell(p, key, cells)
		if !ok || q.Skip.Has(home) {
			return d.noCellError(p, cells)
		}
		q.Skip |= selection.Only(home)
	}
	search = search && p.request.Job.RunAtMS == 0
	if search {
		d.draw(p)
	}
	if len(p.candidates) == 0 && p.request.Job.RunAtMS == 0 {
		d.probe(p)
	}
	if len(p.candidates) > 0 {
		p.to = d.clients[p.candidates[0].Cell()]
		return nil
	}
	if fixed != nil {
		p.to = fixed
		return nil
	}
	home, ok := cells.draw(p.request.Job, q.Skip)
	if !ok {
		return d.noCellError(p, cells)
	}
	p.to = d.clients[home]
	return nil
}

// probe fills in p.candidates with nodes that seem full, unless they have just said that they
// are. For a job of one slot it is also enough that another one asks some of them: nearly always
// a node tells when it has a slot again, and a job that waits has the cache looked at once more.
func (d *Dispatcher) probe(p *placement) {
	p.query.IgnoreFull, p.query.Want = true, cell.MaxCandidates
	if d.draw(p); len(p.candidates) == 0 {
		return
	}
	resting, class, now := &d.clients[p.candidates[0].Cell()].full, p.class.ID(), time.Now()
	switch {
	case p.request.Job.SlotCount() > 1 || p.afterPause: // one that is sent after a pause keeps nobody waiting
		if !resting.has(class, now) {
			p.probe = probe{class: class}
			return
		}
	case resting.ask(class, now):
		p.probe = probe{class, now}
		return
	}
	p.candidates = nil
}

// probed takes in what came of a call if it was a probe; with full, that it found no room.
func (c *client) probed(p *placement, full bool) {
	if p.probe != (probe{}) {
		c.full.told(p.probe, time.Now(), full)
		p.probe = probe{}
	}
}

// unreachable tells why the job cannot even wait: the cells with nodes that fit are where
// nothing can be sent now.
func (d *Dispatcher) noCellError(p *placement, cells *classCells) error {
	away, short, bare := d.nodes.Skip()|p.refusedCells, d.outOfMemory.load(), d.lackReplicas.load()
	for i := range d.clients {
		switch {
		case !cells.takes(i, p.request.Job, away):
		case short.Has(i):
			return outOfMemoryError()
		case bare.Has(i):
			return d.tooFewReplicasError()
		}
	}
	if p.refusedWith != nil {
		return coded("submit", p.refusedWith)
	}
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
		Message: fmt.Sprintf("the nodes that can run service %s are in a part of Redis that does not answer or takes no writes", p.request.Job.Service),
	}
}

// homes remembers in which cells the nodes of a class are, until the class is built
// again. The zero value is empty. It is safe for concurrent use.
type classCellsCache [256]atomic.Pointer[classCells]

// classHomes is how many nodes of a class each cell has, whatever their state, and the
// most slots of any of them. It is immutable.
type classCells struct {
	class *selection.Class
	nodes []int
	slots []int
}

var classCellsSeed = maphash.MakeSeed()

func (d *Dispatcher) cellsOf(class *selection.Class) *classCells {
	place := &d.classCells[maphash.Comparable(classCellsSeed, class)%uint64(len(d.classCells))]
	if known := place.Load(); known != nil && known.class == class {
		return known
	}
	c := &classCells{class: class, nodes: make([]int, len(d.clients)), slots: make([]int, len(d.clients))}
	if len(d.clients) == 1 {
		c.nodes[0], c.slots[0] = class.Fits(), class.MaxSlots()
	} else {
		for _, n := range d.nodes.AllNodes() {
			if i := n.Cell(); class.Has(n) {
				c.nodes[i], c.slots[i] = c.nodes[i]+1, max(c.slots[i], n.Max())
			}
		}
	}
	place.Store(c)
	return c
}

// takes reports whether the job may wait in the cell, in which a node could run it.
func (c *classCells) takes(cell int, job *freeslot.Job, skip selection.CellMask) bool {
	return !skip.Has(cell) && c.nodes[cell] > 0 && job.SlotCount() <= c.slots[cell]
}

// draw picks one of the cells in which the job may wait at random, weighted by the nodes
// there; false when there is none.
func (c *classCells) draw(job *freeslot.Job, skip selection.CellMask) (cell int, ok bool) {
	total := uint64(0)
	for i, n := range c.nodes {
		if c.takes(i, job, skip) {
			total += uint64(n)
		}
	}
	if total == 0 {
		return 0, false
	}
	left := rand.Uint64N(total)
	for i, n := range c.nodes {
		if !c.takes(i, job, skip) {
			continue
		}
		if left < uint64(n) {
			return i, true
		}
		left -= uint64(n)
	}
	panic("dispatch: a draw beyond its total")
}
