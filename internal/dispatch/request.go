package dispatch

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// Request is one job to place. The tenant and the job must be valid.
type Request struct {
	Tenant string
	Job    *freeslot.Job
	// Unlimited exempts the job from the tenant's submit rate and priorities, because an operator
	// submits it again.
	Unlimited bool
	// Run is set for a schedule's job.
	Run *Run
	// Origin says why the job is submitted if no client does. Such a job is enqueued, because only
	// that script writes the origin.
	Origin cell.Origin
}

// Run fixes the job of a schedule's run. The job is enqueued in the cell that its id names, no
// matter which nodes that cell has by now. So it is the same job no matter which replica submits
// it.
type Run struct {
	JobID string
	// Once makes sure that the job is created once, see cell.Submission.
	Once string
}

// rated reports whether the tenant's submit rate counts the job.
func (r *Request) rated() bool { return !r.Unlimited }
