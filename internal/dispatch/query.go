package dispatch

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// couldRun reports whether a node of the class would take the job if it were idle.
func couldRun(class *selection.Class, job *freeslot.Job) bool {
	return class.Fits() > 0 && job.SlotCount() <= class.MaxSlots()
}

// query returns the query for the nodes of the next choice.
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
		return selection.Only(p.at.cell.Index())
	}
	if c := d.runCell(p); c != nil {
		return selection.Only(c.cell.Index())
	}
	return d.nodes.Skip() | d.outOfMemory.load() | d.lackReplicas.load() | p.refusedCells
}

// runCell returns the cell of a run's job; nil for any other job.
func (d *Dispatcher) runCell(p *placement) *cellClient {
	if p.request.Run == nil {
		return nil
	}
	c, _ := d.ofJob(p.request.Run.JobID)
	return c
}
