package embed

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/handle"
)

// Assignment tells where a job runs. At is the time at which this process learned of it.
type Assignment = client.Assignment

// Handle is an accepted job. It is safe for concurrent use.
type Handle struct {
	// id and position are set before a caller has the handle.
	id       string
	position int
	key      string     // in jobs.handles
	job      handle.Job // with jobs.mu

	// jobs.mu guards the fields that follow.

	// owned is true if the result comes here. It is false until an attach has succeeded.
	owned bool
	// attaching is closed when the attach under way ends; nil if there is none. A detach that comes
	// meanwhile is kept in detached, because a later attach takes the job back.
	attaching chan struct{}
	detached  bool
}

// ID returns the job's id.
func (h *Handle) ID() string { return h.id }

// Position returns the job's place in the queue, from 1, when it was accepted or attached to; 0 if
// it did not wait.
func (h *Handle) Position() int { return h.position }

// Assigned returns a channel that is closed when the job gets its first node, or ends before the
// replica has learned of one. A job may wait for a node for any length of time. If the submit got
// an earlier job by its idempotency key, the channel may be closed by a later attempt, or only at
// the end.
func (h *Handle) Assigned() <-chan struct{} { return h.job.Assigned() }

// Assignment returns the latest attempt that the replica knows about; zero before Assigned is
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
// ErrClosed if the replica was stopped. It is a *freeslot.Error with code unavailable if another
// client or replica attached to the job before Stop was called.
func (h *Handle) Wait(ctx context.Context) (freeslot.JobStatus, error) { return h.job.Wait(ctx) }
