package dispatch

import (
	"context"

	"github.com/freeslot/freeslot"
)

// Sink awaits results: a session or an HTTP request. Sinks are compared with ==, so they are
// pointers. The methods must not block and must not call the dispatcher. The calls for one job
// come one after the other.
type Sink interface {
	// Assigned is called for each attempt that begins, in order. An attempt can be left out if its
	// reply was lost.
	Assigned(a Assignment)
	// Progress is called with progress of an attempt that Assigned has reported. Each call reports
	// later progress; some can be left out.
	Progress(jobID string, p freeslot.Progress)
	// Result is called at most once, with a terminal state. It is the last call.
	Result(s freeslot.JobStatus)
	// Detached is called instead of Result if another sink has attached to the job.
	Detached(jobID string)
}

// Attacher is a Sink that learns, in order with its other calls, when an Attach gave it the job. A
// Detached before that call no longer counts.
type Attacher interface {
	Sink
	Attached(jobID string)
}

// Leaver is a Sink whose client may go elsewhere before its submits are decided. Once Life has
// ended, the sink gets no job that it did not create: the client may have attached to the job
// elsewhere, and would lose it to a sink that no client reads. Until then it gets the job of a key
// even if the context of its Submit is cancelled after the acceptance.
type Leaver interface {
	Sink
	Life() context.Context
}

// hasLeft reports whether the client of the sink has gone elsewhere.
func hasLeft(sink Sink) bool {
	l, ok := sink.(Leaver)
	return ok && l.Life().Err() != nil
}

// Accepted describes a job that is stored in Redis.
type Accepted struct {
	// JobID is the id of an earlier job if the idempotency key belongs to that job. The sink gets
	// its result, but not its earlier assignments.
	JobID string
	// Position is the job's place in its queue, from 1. It is 0 for a job that runs, is scheduled
	// for later, or is held back by a limit.
	Position int
}

// Assignment reports which node runs which attempt of a job. Attempts count from 1.
type Assignment struct {
	JobID        string
	Node         string
	Attempt      int
	AssignedAtMS int64
}
