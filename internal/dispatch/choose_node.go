package dispatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// choose picks what the next call offers the job to: candidates, all of one cell, of
// which it takes the first one's slots in the cache, so that this replica's other choices
// see them; or the cell in whose queue the job is to wait. The error is what the client
// is told when there is neither.
func (d *Dispatcher) chooseNode(p *placement) error {
	switch {
	case p.repeat:
		d.prepareRepeat(p)
		return nil // only the script knows whether it is placed
	case d.ctx.Err() != nil:
		return coded("submit", cell.ErrStopped) // its result would find nobody
	case d.outOfMemory.load() == d.allCells:
		return outOfMemoryError()
	case d.lackReplicas.load() == d.allCells:
		return d.tooFewReplicasError()
	}
	begin := time.Now()
	d.refreshClass(p)
	p.query = d.query(p)
	defer func() { d.metrics.selection.Observe(time.Since(begin).Seconds()) }()
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
	// What was sought in vain a moment ago is not sought again.
	searched := !p.enqueue && len(p.refused) == 0 && p.query.Skip == d.skip(p)
	return d.chooseQueue(p, !searched)
}

// pick fills in p.candidates with nodes that seem to be free, and returns false when
// there are none or jobs of the class wait before this one.
func (d *Dispatcher) pick(p *placement) bool {
	job, q := p.request.Job, &p.query
	p.class = d.nodes.Class(job.Service, &job.Requirement)
	behind := d.waitingCells(p.class)
	q.Skip |= behind
	if d.draw(p); len(p.candidates) > 0 {
		return true
	}
	if !couldRun(p.class, job) {
		// The list may be of before the last change of a profile. Where nodes do fit it
		// is good enough to call the fleet full: to have it made anew for every submit
		// to a full fleet would cost more than all placements.
		p.class = d.nodes.Settle(job.Service, &job.Requirement)
		if d.draw(p); len(p.candidates) > 0 {
			return true
		}
	}
	if behind == 0 && p.probes < probeLimit(job) {
		// Only Redis knows that the fleet is full.
		p.probes++
		d.probe(p)
	}
	return len(p.candidates) > 0
}

// draw fills in p.candidates by p.query.
func (d *Dispatcher) draw(p *placement) {
	source, _ := d.sources.Get().(*selection.Source)
	p.candidates = p.class.Choose(p.room[:0], &p.query, source)
	d.sources.Put(source)
}

// couldRun reports whether a node of the class would take the job if it were idle.
func couldRun(class *selection.Class, job *freeslot.Job) bool {
	return class.Fits() > 0 && job.SlotCount() <= class.MaxSlots()
}

// maxProbes is how often nodes that seem full are asked before the job is enqueued, which
// asks once more. A node tells when it becomes full or free, so that is enough for a
// job of one slot; how many slots are free in between it does not tell.
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

// skip are the cells that the job is not to go to. Of one with a call of unknown fate
// that is all but the cell of that call: anywhere else it would be another job.
func (d *Dispatcher) skip(p *placement) selection.CellMask {
	if p.failure != nil {
		return selection.Only(p.client.cell.Index())
	}
	if c := d.runCell(p); c != nil {
		return selection.Only(c.cell.Index())
	}
	return d.nodes.Skip() | d.outOfMemory.load() | d.lackReplicas.load() | p.refusedCells
}

// none tells that no node could ever run the job, or that it is not known.
func (d *Dispatcher) noNodeError(p *placement) error {
	job := p.request.Job
	away := d.nodes.Skip() | p.refusedCells
	if d.nodes.Stale() || away|d.failing.load() != 0 {
		return &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
			Message: "no node is known to fit, but this replica has lost touch with Redis",
		}
	}
	q := d.query(p)
	message := fmt.Sprintf("none of %d nodes can run service %s with this requirement", d.nodes.Size(), job.Service)
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
