package client

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
)

// Assignment says where a job runs.
type Assignment struct {
	Node    string
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

	// What follows is guarded by client.mu, and does not change once the channel
	// that tells of it is closed.

	// link brings the job's news.
	link       *link
	assignment Assignment
	isAssigned bool
	finished   bool
	status     freeslot.JobStatus
	err        error
}

// newHandle must be called with client.mu held.
func newHandle(c *Client, id string, l *link, span jobSpan) *Handle {
	return &Handle{id: id, client: c, link: l, span: span, assigned: make(chan struct{}), done: make(chan struct{})}
}

// ID is the job's id.
func (h *Handle) ID() string { return h.id }

// Assigned is closed when the job has a node, or has ended without the client
// having learned of one.
func (h *Handle) Assigned() <-chan struct{} { return h.assigned }

// Assignment is where the job runs; zero before Assigned is closed. It stays what
// was first known.
func (h *Handle) Assignment() Assignment {
	select {
	case <-h.assigned:
		return h.assignment
	default:
		return Assignment{}
	}
}

// Wait returns the job's terminal status; a job that failed is no error of Wait.
// Any number of goroutines may wait, as often as they like.
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

// assign notes where the job runs; only the first time counts. client.mu is held.
func (h *Handle) assign(node string, attempt int) {
	if h.isAssigned || node == "" {
		return
	}
	h.isAssigned = true
	h.assignment = Assignment{Node: node, Attempt: attempt, At: time.Now()}
	h.span.assigned(node, attempt)
	close(h.assigned)
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
	close(h.done)
}
