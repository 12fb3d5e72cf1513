package client

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
)

// Assignment is where a job runs.
type Assignment struct {
	Node string
	// Attempt is the number of the try, from 1.
	Attempt int
	// At is when this client learned of it, by the local clock.
	At time.Time
}

// Handle is an accepted job. It is safe for concurrent use.
type Handle struct {
	id     string
	client *Client
	// position is the job's place in the queue when it was accepted or attached to.
	position int
	span     jobSpan
	// assigned and done are closed once, with client.mu held.
	assigned, done chan struct{}

	// client.mu guards what follows. status and err do not change once done is closed.

	// conn brings the messages of the job.
	conn *connection
	// assignment is the latest known.
	assignment Assignment
	// progress is made when it is first needed; reported is the latest that has come.
	progress chan freeslot.Progress
	reported freeslot.Progress
	status   freeslot.JobStatus
	err      error
}

// newHandle must be called with client.mu held.
func newHandle(conn *connection, id string, position int, span jobSpan) *Handle {
	return &Handle{
		id: id, client: conn.client, conn: conn, position: position, span: span,
		assigned: make(chan struct{}), done: make(chan struct{}),
	}
}

// ID is the job's id.
func (h *Handle) ID() string { return h.id }

// Position was the job's place in the queue, from 1, when it was accepted or attached to; 0 when it
// did not wait.
func (h *Handle) Position() int { return h.position }

// Assigned is closed when the job gets its first node, or ends before the client has learned of
// one. A job may wait for a node for any length of time.
func (h *Handle) Assigned() <-chan struct{} { return h.assigned }

// Assignment is the latest attempt that this client knows of; zero before Assigned is closed. A job
// whose node is lost goes on elsewhere, with a higher attempt.
func (h *Handle) Assignment() Assignment {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	return h.assignment
}

// Progress is a channel of the progress that the job's handler reports. It holds only the latest
// value, so a slow reader misses the ones between. It is closed when the handle is done. All
// callers share one channel, and each value goes to one of them.
func (h *Handle) Progress() <-chan freeslot.Progress {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	return h.progressChannel()
}

// progressChannel is called with client.mu held.
func (h *Handle) progressChannel() chan freeslot.Progress {
	if h.progress == nil {
		h.progress = make(chan freeslot.Progress, 1)
		if isClosed(h.done) {
			close(h.progress)
		}
	}
	return h.progress
}

// report takes in progress, unless a later value is known. client.mu is held, so there is no other
// sender: the channel has room once the earlier value is out.
func (h *Handle) report(p *freeslot.Progress) {
	if p == nil || isClosed(h.done) || !p.After(&h.reported) {
		return
	}
	h.reported = *p
	c := h.progressChannel()
	select {
	case <-c:
	default:
	}
	c <- *p
}

// Wait returns the job's terminal status. A job that failed, is dead (failed as often as it may),
// expired (not done by its deadline) or was cancelled is no error of Wait: look at the status'
// State and Error. Any number of goroutines may wait, any number of times.
//
// Errors: ctx's when it ends first; then the job goes on, and Wait can be called again. ErrClosed.
// Or a *freeslot.Error when the result will not come: unavailable when another client attached to
// the job, not_found when its record is gone.
func (h *Handle) Wait(ctx context.Context) (freeslot.JobStatus, error) {
	select {
	case <-h.done:
	case <-ctx.Done():
		if !isClosed(h.done) {
			return freeslot.JobStatus{}, ctx.Err()
		}
	}
	return h.status, h.err
}

// assign notes where the job runs, unless a later attempt is known. client.mu is held.
func (h *Handle) assign(node string, attempt int) {
	if node == "" || attempt <= h.assignment.Attempt {
		return
	}
	h.assignment = Assignment{Node: node, Attempt: attempt, At: time.Now()}
	h.span.assigned(node, attempt)
	closeOnce(h.assigned)
}

// finish ends the handle; only the first call counts. client.mu is held.
func (h *Handle) finish(s freeslot.JobStatus, err error) {
	if isClosed(h.done) {
		return
	}
	h.assign(s.Node, s.Attempt)
	closeOnce(h.assigned)
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// closeOnce is called with client.mu held.
func closeOnce(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}
