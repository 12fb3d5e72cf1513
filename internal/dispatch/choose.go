package dispatch

import (
	"fmt"
	"math/rand/v2"
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
	case p.repeats():
		d.prepareRepeat(p)
		return nil // only the script knows whether the job is placed
	case d.ctx.Err() != nil:
		return coded("submit", cell.ErrStopped) // no loop would read its result
	case d.outOfMemory.load() == d.allCells:
		return outOfMemoryError()
	case d.lackReplicas.load() == d.allCells:
		return d.tooFewReplicasError()
	case p.useChoice():
		return nil
	}
	begin := time.Now()
	defer func() { d.metrics.selection.Observe(time.Since(begin).Seconds()) }()
	d.refreshClass(p)
	p.query = d.query(p)
	if p.class == nil && d.mustEnqueue(&p.request) {
		d.setClass(p)
	}
	if !p.enqueues() && p.rounds < d.cfg.Rounds && d.pick(p) {
		p.to = d.byCell[p.candidates[0].Cell()]
		p.take(p.candidates[0])
		return nil
	}
	p.nodeWait = 0
	if !couldRun(p.class, p.request.Job) {
		if p.nodeWait = d.expectedWait(p.request.Job); p.nodeWait == 0 {
			return d.noNodeError(p)
		}
	}
	// Do not repeat a search that failed a moment ago.
	searched := !p.enqueues() && len(p.refused) == 0 && p.query.Skip == d.skip(p)
	return d.chooseQueue(p, !searched)
}

// refreshClass updates the class of a job that was begun under another configuration.
func (d *Dispatcher) refreshClass(p *placement) {
	if p.class != nil && p.class.ConfigVersion() != d.nodes.ConfigVersion() {
		p.class = d.nodes.Settle(p.request.Job.Service, &p.request.Job.Requirement)
	}
}

// prepareRepeat prepares the repetition of a call of unknown outcome. It has the same candidates,
// since only the script can say whether one of them has the job. If the class was paused
// meanwhile, the job is enqueued without candidates in case it was not placed.
func (d *Dispatcher) prepareRepeat(p *placement) {
	before := p.class
	d.refreshClass(p)
	if p.class == before {
		return
	}
	for _, n := range p.candidates {
		if !p.class.Takes(n) {
			p.giveBack()
			p.candidates = nil
			p.enqueue()
			return
		}
	}
}

// setClass sets the class of a job that is enqueued without being offered to nodes first.
func (d *Dispatcher) setClass(p *placement) {
	job := p.request.Job
	p.enqueue()
	p.class = d.nodes.Class(job.Service, &job.Requirement)
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
	full, class, now := &d.byCell[p.candidates[0].Cell()].full, p.class.ID(), time.Now()
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

// probeLimit returns how often nodes that seem full are asked before the job is enqueued, which
// asks once more. A node announces when it becomes full or free, so that is enough for a job of one
// slot. It does not announce how many slots are free in between.
func probeLimit(job *freeslot.Job) int {
	if job.SlotCount() == 1 {
		return 0
	}
	return DefaultRounds - 1
}

// chooseQueue picks the cell in whose queue the job will wait, and candidates there. The same call
// gives free slots of the candidates to the head of the queue, perhaps to this job. So it finds
// slots at no extra cost that the cache has not heard of, or never will because another replica's
// jobs ended. If search is true, it also looks for nodes that seem free.
func (d *Dispatcher) chooseQueue(p *placement, search bool) error {
	p.enqueue()
	job, cells, q := p.request.Job, d.classCells.of(p.class), &p.query
	if p.nodeWait > 0 {
		cells = d.anyCell
	}
	q.Skip, q.IgnoreFull, q.Want, q.Exclude = d.skip(p), false, d.cfg.Candidates, nil
	if p.at != nil && cells.takes(p.at.cell.Index(), job, q.Skip) {
		q.Skip |= selection.Only(p.at.cell.Index())
	}
	p.candidates = nil
	runCell := d.runCell(p)
	if key, ok := cellKey(job); ok && runCell == nil {
		index, ok := cells.keyCell(p.request.Tenant, key, job)
		if !ok || q.Skip.Has(index) {
			return d.noCellError(p, cells)
		}
		q.Skip |= selection.Only(index)
	}
	if job.RunAtMS == 0 {
		if search {
			d.draw(p)
		}
		if len(p.candidates) == 0 {
			d.probe(p)
		}
	}
	switch {
	case len(p.candidates) > 0:
		p.to = d.byCell[p.candidates[0].Cell()]
	case runCell != nil:
		p.to = runCell
	default:
		index, ok := cells.draw(job, q.Skip)
		if !ok {
			return d.noCellError(p, cells)
		}
		p.to = d.byCell[index]
	}
	return d.checkKinds(p)
}

// checkKinds returns an error if the job would make one kind of waiting jobs more than its tenant
// may make, over all cells. Each cell counts its own. The script decides about a job for later, and
// about one whose key may belong to an earlier job.
func (d *Dispatcher) checkKinds(p *placement) error {
	limit := d.cfg.Limits(p.request.Tenant).Kinds
	if job := p.request.Job; limit == 0 || len(d.byCell) == 1 || p.failure != nil || job.RunAtMS != 0 ||
		job.IdempotencyKey != "" {
		return nil
	}
	if _, known := p.to.queues.byID.Load(p.class.ID()); known {
		return nil
	}
	made := 0
	for _, c := range d.byCell {
		if c.queues.byID.Size() > 0 {
			made += c.queues.madeBy(p.request.Tenant)
		}
	}
	if made < limit {
		return nil
	}
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: retryAfter(),
		Message: fmt.Sprintf("jobs of tenant %s wait with %d different requirements or services, its max_kinds",
			p.request.Tenant, limit),
	}
}
