package client

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/handle"
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
	job      handle.Job // with client.mu
	// conn brings the messages of the job. client.mu guards it.
	conn *connection
}

// newHandle must be called with client.mu held.
func newHandle(conn *connection, id string, position int, span jobSpan) *Handle {
	return &Handle{id: id, client: conn.client, position: position, span: span, job: handle.New(&conn.client.mu), conn: conn}
}

// ID is the job's id.
func (h *Handle) ID() string { return h.id }

// Position was the job's place in the queue, from 1, when it was accepted or attached to; 0 when it
// did not wait.
func (h *Handle) Position() int { return h.position }

// Assigned is closed when the job gets its first node, or ends before the client has learned of
// one. A job may wait for a node for any length of time. After a submit that got an
// earlier job by its idempotency key, it may be closed by a later attempt, or only at the end.
func (h *Handle) Assigned() <-chan struct{} { return h.job.Assigned() }

// Assignment is the latest attempt that this client knows of; zero before Assigned is closed. A job
// whose node is lost goes on elsewhere, with a higher attempt.
func (h *Handle) Assignment() Assignment { return Assignment(h.job.Assignment()) }

// Progress is a channel of the progress that the job's handler reports. It holds only the latest
// value, so a slow reader misses the ones between. It is closed when the handle is done. All
// callers share one channel, and each value goes to one of them.
func (h *Handle) Progress() <-chan freeslot.Progress { return h.job.Progress() }

// Wait returns the job's terminal status. A job that failed, is dead (failed as often as it may),
// expired (not done by its deadline) or was cancelled is no error of Wait: look at the status'
// State and Error. Any number of goroutines may wait, any number of times.
//
// Errors: ctx's when it ends first; then the job goes on, and Wait can be called again. ErrClosed.
// Or a *freeslot.Error when the result will not come: unavailable when another client attached to
// the job, not_found when its record is gone.
func (h *Handle) Wait(ctx context.Context) (freeslot.JobStatus, error) { return h.job.Wait(ctx) }

// assign notes where the job runs, unless a later attempt is known. client.mu is held.
func (h *Handle) assign(node string, attempt int) {
	if h.job.Assign(node, attempt) {
		h.span.assigned(node, attempt)
	}
}

// finish ends the handle; only the first call counts. client.mu is held.
func (h *Handle) finish(s freeslot.JobStatus, err error) {
	if h.job.Ended() {
		return
	}
	h.assign(s.Node, s.Attempt)
	if h.client.jobs[h.id] == h {
		delete(h.client.jobs, h.id)
	}
	h.span.end(h.id, s, err)
	h.job.Finish(&s, err)
}
