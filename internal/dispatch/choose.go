package dispatch

import (
	"fmt"
	"math"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// choose picks the candidates of the next round, all of one cell, and takes the
// first one's slots in the cache, so that this replica's other choices see them. The
// error is what the client is told when there are none.
func (d *Dispatcher) choose(p *placing) error {
	switch {
	case p.repeat:
		return nil // same candidates: only the script knows whether it is placed
	case d.ctx.Err() != nil:
		return coded("submit", cell.ErrStopped) // its result would find nobody
	case d.short.load() == d.every:
		return shortOfMemory()
	case p.rounds >= d.cfg.Rounds:
		return full(p.request.Job)
	}
	begin := time.Now()
	p.query = d.query(p)
	source, _ := d.sources.Get().(*selection.Source)
	d.pick(p, source)
	d.sources.Put(source)
	d.metrics.selection.Observe(time.Since(begin).Seconds())
	if len(p.candidates) == 0 {
		return d.none(p)
	}
	p.taken = p.candidates[0].TryTake(p.request.Job.SlotCount())
	return nil
}

// pick fills in p.candidates.
func (d *Dispatcher) pick(p *placing, source *selection.Source) {
	job, q := p.request.Job, &p.query
	p.class = d.nodes.Class(job.Service, &job.Requirement)
	if p.candidates = p.class.Choose(p.room[:0], q, source); len(p.candidates) > 0 {
		return
	}
	if !couldRun(p.class, job) {
		// The list may be of before the last change of a profile. Where nodes do fit it
		// is good enough to call the fleet full: to have it made anew for every submit
		// that a full fleet turns away would cost more than all placements.
		p.class = d.nodes.Settle(job.Service, &job.Requirement)
		if p.candidates = p.class.Choose(p.room[:0], q, source); len(p.candidates) > 0 {
			return
		}
	}
	if p.probes < maxProbes(job) && !d.resting.has(p.class, time.Now()) {
		// Completions reach the cache late, or not at all when another replica's
		// jobs complete: only Redis knows that the fleet is full.
		p.probes++
		q.IgnoreFull, q.Want = true, cell.MaxCandidates
		p.candidates = p.class.Choose(p.room[:0], q, source)
	}
}

// couldRun reports whether a node of the class would take the job if it were idle.
func couldRun(class *selection.Class, job *freeslot.Job) bool {
	return class.Fits() > 0 && job.SlotCount() <= class.MaxSlots()
}

// maxProbes is one for a job of one slot, because every node tells when it becomes
// full or free; how many slots are free in between it does not tell.
func maxProbes(job *freeslot.Job) int {
	if job.SlotCount() == 1 {
		return 1
	}
	return DefaultRounds
}

func (d *Dispatcher) query(p *placing) selection.Query {
	job := p.request.Job
	return selection.Query{
		Want: d.cfg.Candidates, Slots: job.SlotCount(), Now: d.nodes.Now(), SilenceLimit: d.nodes.SilenceLimit(),
		AffinityKey: job.AffinityKey, Skip: d.skip(p), Exclude: p.refused,
	}
}

// skip are the cells that the job is not to go to. Of one with a call of unknown fate
// that is all but the cell of that call: anywhere else it would be another job.
func (d *Dispatcher) skip(p *placing) selection.CellMask {
	if p.failure != nil {
		return selection.Only(p.link.cell.Index())
	}
	return d.nodes.Skip() | d.short.load() | p.away
}

// none tells why pick found no candidate: no node could ever run the job, all that
// could are busy, or they are where nothing can be sent now.
func (d *Dispatcher) none(p *placing) error {
	job := p.request.Job
	away := d.nodes.Skip() | p.away
	if couldRun(p.class, job) {
		return d.busy(p, away)
	}
	if d.nodes.Stale() || away|d.failing.load() != 0 {
		return &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
			Message: "no node is known to fit, but this replica has lost touch with Redis",
		}
	}
	q := d.query(p)
	return &freeslot.Error{
		Code:      freeslot.CodeNoMatchingNode,
		Message:   fmt.Sprintf("none of %d nodes can run service %s with this requirement", d.nodes.Size(), job.Service),
		Breakdown: p.class.Breakdown(&q),
	}
}

// busy tells why none of the nodes that fit takes the job.
func (d *Dispatcher) busy(p *placing, away selection.CellMask) error {
	job, short := p.request.Job, d.short.load()
	if away|short == 0 {
		return full(job)
	}
	cells := d.takers(job, p.class)
	switch {
	case cells == 0 || cells&^away&^short != 0:
		return full(job)
	case cells&^away != 0:
		return shortOfMemory()
	case p.refusal != nil:
		return coded("submit", p.refusal)
	}
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
		Message: fmt.Sprintf("the nodes that can run service %s are in a part of Redis that does not answer or takes no writes", job.Service),
	}
}

// takers are the cells with nodes that could take the job were they free. Silence
// is no matter, because where Redis is away every node falls silent.
func (d *Dispatcher) takers(job *freeslot.Job, class *selection.Class) selection.CellMask {
	var room [1]*selection.Node
	var cells selection.CellMask
	source, _ := d.sources.Get().(*selection.Source)
	defer d.sources.Put(source)
	for i := range d.links {
		q := selection.Query{
			Slots: job.SlotCount(), Now: d.nodes.Now(), SilenceLimit: math.MaxInt64, IgnoreFull: true, Skip: selection.Only(i),
		}
		if len(class.Choose(room[:0], &q, source)) > 0 {
			cells = cells.With(i)
		}
	}
	return cells
}

func full(job *freeslot.Job) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: retryAfter(),
		Message: fmt.Sprintf("all nodes that can run service %s are busy, draining or silent", job.Service),
	}
}
