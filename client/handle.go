package client

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
)

// Assignment says where a job runs.
type Assignment struct {
	Node string
	// Attempt is which try that is, from 1.
	Attempt int
	// At is when this client learned of it, by the local clock.
	At time.Time
}

// Handle is an accepted job. It is safe for concurrent use.
type Handle struct {
	id             string
	client         *Client
	assigned, done chan struct{}
	span           jobSpan
	// position is that of the job when it was accepted or attached to.
	position int

	// What follows is guarded by client.mu; status and err do not change once done is
	// closed.

	// link brings the job's news.
	link *link
	// assignment is the last that was heard of.
	assignment Assignment
	isAssigned bool
	// progress is made when it is first needed; told is the latest that was heard of.
	progress chan freeslot.Progress
	told     freeslot.Progress
	finished bool
	status   freeslot.JobStatus
	err      error
}

// newHandle must be called with client.mu held.
func newHandle(c *Client, id string, position int, l *link, span jobSpan) *Handle {
	return &Handle{id: id, client: c, position: position, link: l, span: span, assigned: make(chan struct{}), done: make(chan struct{})}
}

// ID is the job's id.
func (h *Handle) ID() string { return h.id }

// Position was the job's place among those that wait for the same nodes, from 1, when it
// was accepted or attached to; 0 when it did not wait.
func (h *Handle) Position() int { return h.position }

// Assigned is closed when the job has a node for the first time, or has ended without the
// client having learned of one. A job that waits takes as long as it takes.
func (h *Handle) Assigned() <-chan struct{} { return h.assigned }

// Assignment is the job's last attempt that this client knows of; zero before Assigned is
// closed. A job whose node is lost goes on elsewhere, with a higher attempt.
func (h *Handle) Assignment() Assignment {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	return h.assignment
}

// Progress is a channel of what the job's handler tells of it: of what nobody has received
// yet it holds the latest, so that whoever reads slowly misses what came between. It is
// closed when the handle is done; a job whose handler tells nothing has no more of it than
// that. All callers share one channel, and each value goes to one of them.
func (h *Handle) Progress() <-chan freeslot.Progress {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	return h.progressChannel()
}

// progressChannel is called with client.mu held.
func (h *Handle) progressChannel() chan freeslot.Progress {
	if h.progress == nil {
		h.progress = make(chan freeslot.Progress, 1)
		if h.finished {
			close(h.progress)
		}
	}
	return h.progress
}

// tell takes in progress, unless something later is known. client.mu is held, so that nobody
// else sends: the channel has room once the earlier value is out.
func (h *Handle) tell(p *freeslot.Progress) {
	if p == nil || h.finished || !p.After(&h.told) {
		return
	}
	h.told = *p
	c := h.progressChannel()
	select {
	case <-c:
	default:
	}
	c <- *p
}

// Wait returns the job's terminal status; a job that failed, is dead (failed as often as
// it may), expired (not done by its deadline) or was cancelled is no error of Wait: look
// at the status' State and Error. Any number of goroutines may wait, as often as they like.
//
// Errors: ctx's when it ends first, and then the job goes on and Wait can be
// called again; ErrClosed; or a *freeslot.Error when the result will not come:
// unavailable when another client attached to the job, not_found when its record
// is gone.
func (h *Handle) Wait(ctx context.Context) (freeslot.JobStatus, error) {
	select {
	case <-h.done:
		return h.status, h.err
	default:
	}
	select {
	case <-h.done:
		return h.status, h.err
	case <-ctx.Done():
		return freeslot.JobStatus{}, ctx.Err()
	}
}

// assign notes where the job runs, unless it is known to be further. client.mu is held.
func (h *Handle) assign(node string, attempt int) {
	if node == "" || attempt <= h.assignment.Attempt {
		return
	}
	h.assignment = Assignment{Node: node, Attempt: attempt, At: time.Now()}
	h.span.assigned(node, attempt)
	if !h.isAssigned {
		h.isAssigned = true
		close(h.assigned)
	}
}

// finish ends the handle; only the first time counts. client.mu is held.
func (h *Handle) finish(s freeslot.JobStatus, err error) {
	if h.finished {
		return
	}
	h.assign(s.Node, s.Attempt)
	if !h.isAssigned {
		h.isAssigned = true
		close(h.assigned)
	}
	h.finished = true
	h.status, h.err = s, err
	if h.client.jobs[h.id] == h {
		delete(h.client.jobs, h.id)
	}
	h.span.end(h.id, s, err)
	if h.progress != nil {
		close(h.progress)
	}
	close(h.done)
}
