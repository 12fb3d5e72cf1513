package dispatch

import (
	"github.com/freeslot/freeslot/internal/selection"
)

// chooseQueue picks the cell in whose queue the job will wait, and candidates there. The same call
// gives free slots of the candidates to the head of the queue, perhaps to this job. So it finds
// slots at no extra cost that the cache has not heard of, or never will because another replica's
// jobs ended. If search is true, it also looks for nodes that seem free.
func (d *Dispatcher) chooseQueue(p *placement, search bool) error {
	p.enqueue = true
	job, cells, q := p.request.Job, d.cellsOf(p.class), &p.query
	q.Skip, q.IgnoreFull, q.Want, q.Exclude = d.skip(p), false, d.cfg.Candidates, nil
	if p.client != nil && cells.takes(p.client.cell.Index(), job, q.Skip) {
		q.Skip |= selection.Only(p.client.cell.Index())
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
		p.to = d.clients[p.candidates[0].Cell()]
	case runCell != nil:
		p.to = runCell
	default:
		index, ok := cells.draw(job, q.Skip)
		if !ok {
			return d.noCellError(p, cells)
		}
		p.to = d.clients[index]
	}
	return nil
}

// noCellError says why the job cannot even wait: no call can be sent now to the cells that have
// fitting nodes.
func (d *Dispatcher) noCellError(p *placement, cells *classCells) error {
	away, outOfMemory, lackReplicas := d.nodes.Skip()|p.refusedCells, d.outOfMemory.load(), d.lackReplicas.load()
	for i := range d.clients {
		switch {
		case !cells.takes(i, p.request.Job, away):
		case outOfMemory.Has(i):
			return outOfMemoryError()
		case lackReplicas.Has(i):
			return d.tooFewReplicasError()
		}
	}
	if p.refusedWith != nil {
		return coded("submit", p.refusedWith)
	}
	if refusing, reason := d.refusing(); refusing > 0 {
		return unavailable(
			"the nodes that can run service %s are in a part of Redis that refuses writes: %s", p.request.Job.Service, reason,
		)
	}
	return unavailable(
		"the nodes that can run service %s are in a part of Redis that does not answer or takes no writes",
		p.request.Job.Service,
	)
}
