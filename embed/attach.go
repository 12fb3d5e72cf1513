package embed

import (
	"context"

	"github.com/freeslot/freeslot"
)

// Attach makes this replica the one that gets a job's result. A client or replica that waited for
// the job before does not get it then. A job that has ended gives a handle with its result. A job
// whose result is awaited here already gives the handle that exists. Errors as Cancel, and
// overloaded.
func (r *Replica) Attach(ctx context.Context, jobID string) (*Handle, error) {
	h, known, err := r.jobs.beginAttach(jobID)
	if err != nil || known {
		return h, err
	}
	status, err := r.dispatcher.Attach(ctx, r.cfg.Tenant, jobID, r.jobs)
	if err := r.jobs.endAttach(h, &status, err); err != nil {
		return nil, gaveUp(ctx, err)
	}
	return h, nil
}

// beginAttach adds the job before the dispatcher can send its result. It returns the handle that
// takes the news of the job, and whether that has been taken over already.
func (js *jobs) beginAttach(jobID string) (_ *Handle, known bool, _ error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if err := js.refusal(); err != nil {
		return nil, false, err
	}
	h := js.handles[keyOf(jobID)]
	switch {
	case h == nil && len(js.handles)+js.reserved >= js.limit:
		return nil, false, js.tooMany()
	case h == nil:
		h = js.add(jobID)
	case h.owned:
		return h, true, nil
	}
	h.attaching++
	js.calls++
	return h, false, nil
}

func (js *jobs) endAttach(h *Handle, s *freeslot.JobStatus, err error) error {
	js.mu.Lock()
	defer js.mu.Unlock()
	h.attaching--
	js.calls--
	if err == nil {
		js.own(h, s.ID, s.Position)
		h.job.Report(s.Progress)
		switch {
		case s.State.Terminal():
			js.finish(h, s, nil)
		case s.State == freeslot.StateRunning || s.State == freeslot.StateCancelling:
			// The status of a waiting job has the node where it ran last, if it ever did.
			h.job.Assign(s.Node, s.Attempt)
		}
	}
	switch {
	case h.attaching > 0:
	case !h.owned: // all attaches have failed
		js.remove(h)
	case h.detached:
		js.detach(h)
	}
	js.closeIfIdle()
	return err
}
