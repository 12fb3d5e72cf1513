package embed

import (
	"context"

	"github.com/freeslot/freeslot"
)

// Attach makes this replica the one that gets a job's result. A client or replica that waited for
// the job before then does not get it. If the job has ended, Attach returns a handle with its
// result. If this replica already awaits the job, Attach returns the existing handle. The errors
// are Cancel's, and overloaded.
func (r *Replica) Attach(ctx context.Context, jobID string) (*Handle, error) {
	h, known, err := r.jobs.beginAttach(ctx, jobID)
	if err != nil || known {
		return h, err
	}
	status, err := r.dispatcher.Attach(ctx, r.cfg.Tenant, jobID, r.jobs)
	r.jobs.endAttach(h, &status, err)
	if err != nil {
		return nil, gaveUp(ctx, err)
	}
	return h, nil
}

// beginAttach adds the job before the dispatcher can send its result. It returns the handle that
// takes news about the job, and whether the result already comes here. While another attach to the
// job is under way it waits, because the two would get in each other's way.
func (js *jobs) beginAttach(ctx context.Context, jobID string) (_ *Handle, known bool, _ error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for {
		if err := js.refusal(); err != nil {
			return nil, false, err
		}
		h := js.handles[keyOf(jobID)]
		switch {
		case h == nil && len(js.handles)+js.reserved >= js.limit:
			return nil, false, js.tooMany()
		case h == nil:
			h = js.add(jobID)
			h.attaching = make(chan struct{})
			js.calls++
			return h, false, nil
		case h.owned:
			return h, true, nil
		}
		if err := js.await(ctx, h.attaching); err != nil {
			return nil, false, err
		}
	}
}

// await waits for the end of an attach. The caller holds mu, which await releases meanwhile.
func (js *jobs) await(ctx context.Context, attach <-chan struct{}) error {
	js.mu.Unlock()
	defer js.mu.Lock()
	select {
	case <-attach:
		return nil
	case <-ctx.Done():
		return gaveUp(
			ctx, &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "gave up waiting for another attach to the job"},
		)
	}
}

func (js *jobs) endAttach(h *Handle, s *freeslot.JobStatus, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	close(h.attaching)
	h.attaching = nil
	js.calls--
	if err == nil {
		js.own(h, s.ID, s.Position)
		h.job.Report(s.Progress)
		switch {
		case s.State.Terminal():
			js.finish(h, s, nil)
		case s.State == freeslot.StateRunning || s.State == freeslot.StateCancelling:
			// The status of a waiting job names the node on which it ran last, if it ever did.
			h.job.Assign(s.Node, s.Attempt)
		}
	}
	switch {
	case !h.owned:
		js.remove(h)
	case h.detached:
		js.detach(h)
	}
	js.closeIfIdle()
}
