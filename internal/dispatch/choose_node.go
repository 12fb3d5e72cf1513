package dispatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// chooseNode picks what the next call offers the job to. Either that is candidates, all in one
// cell: it takes slots of the first one in the cache, so that this replica's other choices see
// them. Or it is the cell in whose queue the job will wait. If there is neither, it returns an
// error for the client.
func (d *Dispatcher) chooseNode(p *placement) error {
	switch {
	case p.repeat:
		d.prepareRepeat(p)
		return nil // only the script knows whether the job is placed
	case d.ctx.Err() != nil:
		return coded("submit", cell.ErrStopped) // no loop would read its result
	case d.outOfMemory.load() == d.allCells:
		return outOfMemoryError()
	case d.lackReplicas.load() == d.allCells:
		return d.tooFewReplicasError()
	case p.grouped:
		p.grouped = false // later rounds choose for the job alone
		return nil
	}
	begin := time.Now()
	defer func() { d.metrics.selection.Observe(time.Since(begin).Seconds()) }()
	d.refreshClass(p)
	p.query = d.query(p)
	if p.class == nil && d.mustEnqueue(&p.request) {
		d.setClass(p)
	}
	if !p.enqueue && p.rounds < d.cfg.Rounds && d.pick(p) {
		p.to = d.clients[p.candidates[0].Cell()]
		p.taken = p.candidates[0].TryTake(p.request.Job.SlotCount())
		return nil
	}
	if !couldRun(p.class, p.request.Job) {
		return d.noNodeError(p)
	}
	// Do not repeat a search that failed a moment ago.
	searched := !p.enqueue && len(p.refused) == 0 && p.query.Skip == d.skip(p)
	return d.chooseQueue(p, !searched)
}

// setClass sets the class of a job that is enqueued without being offered to nodes first.
func (d *Dispatcher) setClass(p *placement) {
	job := p.request.Job
	p.enqueue, p.class = true, d.nodes.Class(job.Service, &job.Requirement)
	if !couldRun(p.class, job) {
		p.class = d.nodes.Settle(job.Service, &job.Requirement)
	}
}

// pick fills in p.candidates with nodes that seem free. It returns false if there are none, or if
// jobs of the class wait already.
func (d *Dispatcher) pick(p *placement) bool {
	job, q := p.request.Job, &p.query
	p.class = d.nodes.Class(job.Service, &job.Requirement)
	waiting := d.waitingCells(p.class)
	q.Skip |= waiting
	if d.draw(p); len(p.candidates) > 0 {
		return true
	}
	if !couldRun(p.class, job) {
		// The list may be older than the last change of a profile. If nodes do fit, it is good
		// enough to call the fleet full: building it again for every submit to a full fleet would
		// cost more than all placements.
		p.class = d.nodes.Settle(job.Service, &job.Requirement)
		if d.draw(p); len(p.candidates) > 0 {
			return true
		}
	}
	if waiting == 0 && p.probes < probeLimit(job) {
		p.probes++
		d.probe(p)
	}
	return len(p.candidates) > 0
}

// draw fills in p.candidates by p.query.
func (d *Dispatcher) draw(p *placement) {
	p.candidates = p.class.Choose(p.room[:0], &p.query, selection.NewSource(rand.Uint64()))
}

// probe fills in p.candidates with nodes that seem full, unless they have just answered that they
// are. For a job of one slot it is enough that another job asks: a node nearly always announces
// that it has a slot again, and the cache is searched once more for a waiting job.
func (d *Dispatcher) probe(p *placement) {
	p.query.IgnoreFull, p.query.Want = true, cell.MaxCandidates
	if d.draw(p); len(p.candidates) == 0 {
		return
	}
	full, class, now := &d.clients[p.candidates[0].Cell()].full, p.class.ID(), time.Now()
	switch {
	case p.request.Job.SlotCount() > 1 || p.afterPause: // a call after a pause would keep others waiting for its answer
		if !full.has(class, now) {
			p.probe = probe{class: class}
			return
		}
	case full.ask(class, now):
		p.probe = probe{class, now}
		return
	}
	p.candidates = nil
}

// couldRun reports whether a node of the class would take the job if it were idle.
func couldRun(class *selection.Class, job *freeslot.Job) bool {
	return class.Fits() > 0 && job.SlotCount() <= class.MaxSlots()
}

// probeLimit returns how often nodes that seem full are asked before the job is enqueued, which
// asks once more. A node announces when it becomes full or free, so that is enough for a job of one
// slot. It does not announce how many slots are free in between.
func probeLimit(job *freeslot.Job) int {
	if job.SlotCount() == 1 {
		return 0
	}
	return DefaultRounds - 1
}

func (d *Dispatcher) query(p *placement) selection.Query {
	job := p.request.Job
	return selection.Query{
		Want: d.cfg.Candidates, Slots: job.SlotCount(), Now: d.nodes.Now(), SilenceLimit: d.nodes.SilenceLimit(),
		AffinityKey: job.AffinityKey, Skip: d.skip(p), Exclude: p.refused,
	}
}

// skip returns the cells that the job must not go to. After a call of unknown outcome these are all
// other cells, where it would be another job.
func (d *Dispatcher) skip(p *placement) selection.CellMask {
	if p.failure != nil {
		return selection.Only(p.client.cell.Index())
	}
	if c := d.runCell(p); c != nil {
		return selection.Only(c.cell.Index())
	}
	return d.nodes.Skip() | d.outOfMemory.load() | d.lackReplicas.load() | p.refusedCells
}

// noNodeError says that no node could ever run the job, that this replica does not know, or that
// such a node may be back soon.
func (d *Dispatcher) noNodeError(p *placement) error {
	job := p.request.Job
	if refusing, reason := d.refusing(); refusing > 0 {
		return unavailable("no node is known to fit, but Redis refuses writes, and so heartbeats: %s", reason)
	}
	if d.nodes.Stale() || d.nodes.Skip()|p.refusedCells|d.failing.load() != 0 {
		return unavailable("no node is known to fit, but this replica has lost touch with Redis")
	}
	q := d.query(p)
	message := fmt.Sprintf("none of %d nodes can run service %s with this requirement", d.nodes.Size(), job.Service)
	if d.nodes.MayReturn(job) {
		return unavailable("%s, but nodes that are new, fell silent or were forgotten by Redis may be there soon", message)
	}
	// A node may have come back after the search and before the check of absent nodes.
	if couldRun(d.nodes.Settle(job.Service, &job.Requirement), job) {
		return unavailable("a node that can run service %s has just come back", job.Service)
	}
	if pool := job.Requirement.Pool; pool != "" && !d.hasPool(pool) {
		message += ": there is no pool " + pool + ", by configuration or by a node that names it"
	}
	return &freeslot.Error{Code: freeslot.CodeNoMatchingNode, Message: message, Breakdown: p.class.Breakdown(&q)}
}

// hasPool reports whether a pool is configured, or named by a node.
func (d *Dispatcher) hasPool(id string) bool {
	configured := slices.ContainsFunc(d.nodes.Config().Pools, func(p selection.Pool) bool { return p.ID == id })
	return configured || slices.ContainsFunc(d.nodes.AllNodes(), func(n *selection.Node) bool {
		return slices.Contains(n.Profile().Node().Pools, id)
	})
}
