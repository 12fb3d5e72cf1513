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
	case p.failure != nil:
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
	p.candidates = d.nodes.Choose(p.room[:0], job.Service, &job.Requirement, q, source)
	if len(p.candidates) > 0 {
		return
	}
	// The list may be of before the last change of a profile.
	if class := d.nodes.Settle(job.Service, &job.Requirement); class != p.settled {
		p.settled = class
		p.candidates = class.Choose(p.room[:0], q, source)
	}
	if len(p.candidates) == 0 && p.probes < maxProbes(job) {
		// Completions reach the cache late, or not at all when another replica's
		// jobs complete: only Redis knows that the fleet is full.
		p.probes++
		q.IgnoreFull, q.Want = true, cell.MaxCandidates
		p.candidates = p.settled.Choose(p.room[:0], q, source)
	}
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
		AffinityKey: job.AffinityKey, Skip: d.nodes.Skip() | d.short.load(), Exclude: p.refused,
	}
}

// none tells why there is no candidate: no node could ever run the job, all that
// could are busy, or they are where nothing can be sent now.
func (d *Dispatcher) none(p *placing) error {
	job := p.request.Job
	class := d.nodes.Settle(job.Service, &job.Requirement)
	away := d.nodes.Skip()
	if class.Fits() > 0 && job.SlotCount() <= class.MaxSlots() {
		return d.busy(job, class, away)
	}
	if d.nodes.Stale() || away != 0 {
		return &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
			Message: "no node is known to fit, but this replica has lost touch with Redis",
		}
	}
	q := d.query(p)
	return &freeslot.Error{
		Code:      freeslot.CodeNoMatchingNode,
		Message:   fmt.Sprintf("none of %d nodes can run service %s with this requirement", d.nodes.Size(), job.Service),
		Breakdown: class.Breakdown(&q),
	}
}

// busy tells why none of the nodes that fit takes the job.
func (d *Dispatcher) busy(job *freeslot.Job, class *selection.Class, away selection.CellMask) error {
	short := d.short.load()
	if away|short == 0 {
		return full(job)
	}
	cells := d.takers(job, class)
	switch {
	case cells == 0 || cells&^away&^short != 0:
		return full(job)
	case cells&^away != 0:
		return shortOfMemory()
	}
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
		Message: fmt.Sprintf("the nodes that can run service %s are in a part of Redis that does not answer", job.Service),
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
