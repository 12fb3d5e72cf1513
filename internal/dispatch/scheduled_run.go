package dispatch

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Run fixes the job of a schedule's run. The job is enqueued in the cell that its id names, no
// matter which nodes that cell has by now. So it is the same job no matter which replica submits
// it.
type Run struct {
	JobID string
	// Once makes sure that the job is created once, see cell.Submission.
	Once string
}

// Home returns the index of the cell for a job that is submitted later: near if nodes there could
// run it, otherwise any cell that could. If there is none, it returns the errors of such a Submit.
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
	if _, ok := cellKey(job); !ok {
		p.client = d.clients[near]
	}
	if err := d.chooseQueue(p, false); err != nil {
		return 0, err
	}
	return p.to.cell.Index(), nil
}

// runCell returns the cell of a run's job; nil for any other job.
func (d *Dispatcher) runCell(p *placement) *client {
	if p.request.Run == nil {
		return nil
	}
	c, _ := d.clientOf(p.request.Run.JobID)
	return c
}
