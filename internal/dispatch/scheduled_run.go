package dispatch

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Run is what the run of a schedule fixes of its job. The job is enqueued in the cell that
// its id names, whatever nodes are there by now: so it is the same one whoever submits it.
type Run struct {
	JobID string
	// Once makes it be created once, see cell.Submission.
	Once string
}

// Home is the index of the cell to which a job is to go that is submitted later: that of the
// index near if nodes there could run it, else one as good as any. Errors: as of a Submit that
// no cell takes.
func (d *Dispatcher) Home(tenant string, job *freeslot.Job, near int) (int, error) {
	p := &placement{request: Request{Tenant: tenant, Job: job}}
	if d.ctx.Err() != nil {
		return 0, coded("submit", cell.ErrStopped)
	}
	d.setClass(p)
	p.query = d.query(p)
	if !couldRun(p.class, job) {
		return 0, d.noNodeError(p)
	}
	if _, keyed := cellKey(job); !keyed {
		p.client = d.clients[near]
	}
	if err := d.chooseQueue(p, false); err != nil {
		return 0, err
	}
	return p.to.cell.Index(), nil
}

// fixed is the cell of the job of a run; nil for any other.
func (d *Dispatcher) runCell(p *placement) *client {
	if p.request.Run == nil {
		return nil
	}
	c, _ := d.clientOf(p.request.Run.JobID)
	return c
}
