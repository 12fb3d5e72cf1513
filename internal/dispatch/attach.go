package dispatch

import (
	"context"

	"github.com/freeslot/freeslot"
)

// Attach gives the job's result to sink, and returns the job's status. After a terminal status
// nothing more comes. Otherwise Result or Detached comes once, possibly before Attach returns. An
// earlier sink gets Detached; if Attach fails, it keeps the job. The error is a *freeslot.Error.
func (d *Dispatcher) Attach(ctx context.Context, tenant, jobID string, sink Sink) (freeslot.JobStatus, error) {
	// The record is read first, so that a client without rights to it makes no waiter.
	known, err := d.Job(ctx, tenant, jobID)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	jobID = known.ID // another id if the job has moved
	// The waiter exists before the script runs, because the result can be faster than its reply.
	c, _ := d.ofJob(jobID) // its record was read from there
	w, err := c.join(jobID)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	status, err := d.cells.Attach(ctx, tenant, jobID, d.cfg.Replica)
	if status.State == freeslot.StateScheduled {
		status.RunAtMS = known.RunAtMS // it does not change
	}
	if w.endAttach(sink, &status, err) {
		c.drop(jobID, w)
	}
	if err != nil {
		return freeslot.JobStatus{}, d.coded("attach", err)
	}
	return status, nil
}

// join returns the job's waiter with an attach under way.
func (c *cellClient) join(jobID string) (*waiter, error) {
	w, ok := c.claim(jobID, &waiter{attaching: 1, attaches: 1, checkedAt: c.d.nodes.Now()}, (*waiter).beginAttach)
	if !ok {
		return nil, unavailable("attach: the job is just being accepted")
	}
	return w, nil
}

// adopt gives the job's result to sink without an attach, once this cell learns of it. An earlier
// sink gets Detached. It returns false while a submit of the job is under way.
func (c *cellClient) adopt(known *freeslot.JobStatus, sink Sink) bool {
	_, ok := c.claim(known.ID, &waiter{sink: sink, open: true, known: *known, checkedAt: c.d.nodes.Now()},
		func(w *waiter) (ok, done bool) { return w.adopt(known, sink) })
	return ok
}

// awaits reports whether sink awaits the job's result already, by another submit or attach.
func (d *Dispatcher) awaits(jobID string, sink Sink) (yes bool) {
	if c, ok := d.ofJob(jobID); ok {
		c.update(jobID, func(w *waiter) { yes = w.open && w.sink == sink })
	}
	return yes
}
