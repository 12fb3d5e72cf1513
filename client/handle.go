package client

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/handle"
)

// Assignment tells where a job runs.
type Assignment struct {
	Node string
	// Attempt is the number of the try, from 1.
	Attempt int
	// At is the time at which this client learned of it, by the local clock.
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
	// conn is the connection that brings the job's messages. client.mu guards it.
	conn *connection
	// key names the job as call.names does; taken is true if a lost request took the job away.
	// client.mu guards both.
	key   string
	taken bool
}

// newHandle makes a handle. The caller holds client.mu.
func newHandle(conn *connection, id string, position int, span jobSpan) *Handle {
	return &Handle{
		id: id, client: conn.client, position: position, span: span, job: handle.New(&conn.client.mu), conn: conn,
	}
}

// ID returns the job's id.
func (h *Handle) ID() string { return h.id }

// Position returns the job's place in the queue, from 1, when it was accepted or attached to; 0 if
// it did not wait.
func (h *Handle) Position() int { return h.position }

// Assigned returns a channel that is closed when the job gets its first node, or ends before the
// client has learned of one. A job may wait for a node for any length of time. If the submit got an
// earlier job by its idempotency key, the channel may be closed by a later attempt, or only at the
// end.
func (h *Handle) Assigned() <-chan struct{} { return h.job.Assigned() }

// Assignment returns the latest attempt that this client knows about; zero before Assigned is
// closed. A job whose node is lost goes on elsewhere, with a higher attempt.
func (h *Handle) Assignment() Assignment { return Assignment(h.job.Assignment()) }

// Progress returns a channel of the progress that the job's handler reports. It holds only the
// latest value, so a slow reader misses the ones between. It is closed when the handle is done. All
// callers share one channel, and each value goes to one of them.
func (h *Handle) Progress() <-chan freeslot.Progress { return h.job.Progress() }

// Wait returns the job's terminal status. It returns no error for a job that failed, is dead
// (failed MaxAttempts times), expired (not done by its deadline) or was cancelled: look at the
// status' State and Error. Any number of goroutines may wait, any number of times.
//
// The error is ctx's if ctx ends first; then the job goes on, and Wait can be called again. It is
// ErrClosed if the client was closed. It is a *freeslot.Error if the result will not come:
// unavailable if another client attached to the job, not_found if its record is gone.
func (h *Handle) Wait(ctx context.Context) (freeslot.JobStatus, error) { return h.job.Wait(ctx) }

// assign records where the job runs, unless a later attempt is known. The caller holds client.mu.
func (h *Handle) assign(node string, attempt int) {
	if h.job.Assign(node, attempt) {
		h.span.assigned(node, attempt)
	}
}

// finish ends the handle; only the first call counts. The caller holds client.mu.
func (h *Handle) finish(s freeslot.JobStatus, err error) {
	if h.job.Ended() {
		return
	}
	h.assign(s.Node, s.Attempt)
	if h.client.jobs[h.id] == h {
		delete(h.client.jobs, h.id)
	}
	delete(h.client.lost, h.id)
	delete(h.client.lost, h.key)
	h.span.end(h.id, s, err)
	h.job.Finish(&s, err)
}
