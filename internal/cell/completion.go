package cell

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
)

// Completion is the end of one attempt.
type Completion struct {
	Node    string
	Epoch   Epoch
	Attempt Attempt
	// State is StateSucceeded, StateFailed or StateCancelled.
	State freeslot.State
	// Result is any JSON value, for StateSucceeded; nil means null. It must not be changed any
	// more: a call that the caller gave up can still be sending it.
	Result json.RawMessage
	// Error is set for StateFailed.
	Error *freeslot.JobError
	// For StateFailed, Next says whether another attempt follows, and RetryDelay after how long.
	// The job ends all the same if it is being cancelled or has no attempts or time left.
	Next       Next
	RetryDelay time.Duration
	// Begun gets the jobs that begin on the node with this call, if any, before Complete returns.
	// It must not block. If the answer is lost, so are these jobs; the next heartbeat names them,
	// as it does for missed entries of the dispatch stream. If Begun is nil, the dispatch stream
	// delivers the jobs. If several items share a call, the first one with a Begun gets all jobs.
	Begun func([]Dispatch)
}

// Next says what follows a failed attempt.
type Next uint8

const (
	// Never ends the job as failed.
	Never Next = iota
	// Retry counts the failure. If it is the last one that the job may have, the job is dead.
	Retry
	// HandBack is for a node that stops. It does not count as a failure of the job.
	HandBack
)

// Dispatch is what an entry of a node's dispatch stream says about one job.
type Dispatch struct {
	// ID is the entry's position in the stream. Several jobs can have the same.
	ID      string
	Attempt Attempt
	// Cancel is true for a control entry: stop this attempt.
	Cancel bool
	Tenant string
	// Job is nil for control entries, and for a job that is too large for the stream. Read the
	// latter by Spec.
	Job *freeslot.Job
}

// CompletionOutcome says what a Completion did.
type CompletionOutcome string

// The outcomes of a completion.
const (
	// Completed: the outcome is stored, the slot is free, and the result was sent.
	Completed CompletionOutcome = "completed"
	// CompletedBefore: this attempt had ended already, by an earlier call or because another agent
	// took its node over. Nothing changed.
	CompletedBefore CompletionOutcome = "completed_before"
	// CompletedStale: the node does not own this attempt. Nothing changed.
	CompletedStale CompletionOutcome = "stale"
)

// completionOutcomes are indexed by the codes of complete.lua.
var completionOutcomes = []CompletionOutcome{CompletedStale, Completed, CompletedBefore}

func completionSize(comp Completion) int { return len(comp.Result) + controlOverhead }

// next returns the argument of complete.lua for what follows the attempt.
func (c *Completion) next() string {
	switch c.Next {
	case Retry:
		return strconv.FormatInt(max(c.RetryDelay.Milliseconds(), 0), 10)
	case HandBack:
		return "h"
	default:
		return ""
	}
}

func (c *Completion) validate() error {
	if err := validateAgent(c.Node, c.Epoch); err != nil {
		return err
	}
	if err := ValidateJobID("job_id", c.Attempt.Job); err != nil {
		return err
	}
	switch {
	case !c.State.Terminal():
		return freeslot.Invalid("state", "is %q, which is not terminal", c.State)
	case c.State == freeslot.StateFailed && c.Error == nil:
		return freeslot.Invalid("error", "is missing from a job that failed")
	case c.Next != Never && c.State != freeslot.StateFailed:
		return freeslot.Invalid("next", "is set for a job that is %s, expected one that failed", c.State)
	}
	return freeslot.ValidateJSON("result", c.Result)
}
