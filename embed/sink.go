package embed

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// Assigned implements dispatch.Sink.
func (js *jobs) Assigned(a dispatch.Assignment) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if h := js.handles[keyOf(a.JobID)]; h != nil {
		h.job.Assign(a.Node, a.Attempt)
	}
}

// Progress implements dispatch.Sink.
func (js *jobs) Progress(jobID string, p freeslot.Progress) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if h := js.handles[keyOf(jobID)]; h != nil {
		h.job.Report(&p)
	}
}

// Result implements dispatch.Sink.
func (js *jobs) Result(s freeslot.JobStatus) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if h := js.handles[keyOf(s.ID)]; h != nil {
		js.finish(h, &s, nil)
	}
}

// Detached implements dispatch.Sink.
func (js *jobs) Detached(jobID string) {
	js.mu.Lock()
	defer js.mu.Unlock()
	switch h := js.handles[keyOf(jobID)]; {
	case h == nil:
	case h.attaching != nil:
		h.detached = true
	default:
		js.detach(h)
	}
}

// Attached implements dispatch.Attacher.
func (js *jobs) Attached(jobID string) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if h := js.handles[keyOf(jobID)]; h != nil {
		h.detached = false
	}
}

// Life implements dispatch.Leaver.
func (js *jobs) Life() context.Context { return js.life }

// detach fails the handle of a job whose result goes elsewhere. The caller holds mu.
func (js *jobs) detach(h *Handle) {
	if js.draining { // this can be the reason: an attach for a key ends with life, and no one else has the job
		js.finish(h, nil, ErrClosed)
		return
	}
	js.finish(h, nil, &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "another client or replica attached to the job and gets its result",
	})
}
