package dispatch

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Home returns the index of the cell for a job that is submitted later: near if nodes there could
// run it, otherwise any cell that could. The first node of a class may come to each cell. If there
// is no such cell, it returns the errors of such a Submit.
func (d *Dispatcher) Home(tenant string, job *freeslot.Job, near int) (int, error) {
	p := &placement{request: Request{Tenant: tenant, Job: job}}
	if d.ctx.Err() != nil {
		return 0, coded("submit", cell.ErrStopped)
	}
	d.setClass(p)
	p.query = d.query(p)
	if !couldRun(p.class, job) {
		if p.nodeWait = d.expectedWait(job); p.nodeWait == 0 {
			return 0, d.noNodeError(p)
		}
	}
	if _, ok := cellKey(job); !ok {
		p.at = d.byCell[near]
	}
	if err := d.chooseQueue(p, false); err != nil {
		return 0, err
	}
	return p.to.cell.Index(), nil
}
