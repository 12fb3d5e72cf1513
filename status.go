package freeslot

import "encoding/json"

// State is a job's stage of life.
type State string

// The states of a job. StateSucceeded and those after it are terminal.
const (
	// StateScheduled: the job waits for its time, see Job.RunAtMS.
	StateScheduled State = "scheduled"
	// StateWaiting: the job waits for a slot on a node that fits.
	StateWaiting State = "waiting"
	// StateMoving: the job moves from a cell without fitting nodes to one that has some.
	StateMoving State = "moving"
	// StateRetryWait: an attempt failed, and the next one is due later.
	StateRetryWait  State = "retry_wait"
	StateRunning    State = "running"
	StateCancelling State = "cancelling"
	StateSucceeded  State = "succeeded"
	// StateFailed: the handler returned an error that no retry can mend.
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"
	// StateExpired: the job was not done by its deadline.
	StateExpired State = "expired"
	// StateDead: the job has failed MaxAttempts times.
	StateDead State = "dead"
)

// States lists every state, in the order of a job's life.
func States() []State {
	return []State{
		StateScheduled, StateWaiting, StateMoving, StateRetryWait, StateRunning, StateCancelling,
		StateSucceeded, StateFailed, StateCancelled, StateExpired, StateDead,
	}
}

// Terminal reports whether a job in this state will never change again.
func (s State) Terminal() bool {
	switch s {
	case StateSucceeded, StateFailed, StateCancelled, StateExpired, StateDead:
		return true
	default:
		return false
	}
}

// JobError tells why a job failed.
type JobError struct {
	// Code is one of the JobError codes, or one that a handler chose.
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes that freeslot itself gives to failed jobs.
const (
	// JobErrorHandler: the handler returned an error.
	JobErrorHandler = "handler_error"
	// JobErrorPanic: the handler panicked; the node goes on.
	JobErrorPanic = "panic"
	// JobErrorNoHandler: the node got a job for a service that it does not run.
	JobErrorNoHandler = "no_handler"
	// JobErrorInterrupted: the node stopped before the job was done.
	JobErrorInterrupted = "interrupted"
	// JobErrorNodeLost: the node fell silent, or its agent restarted and so lost the job.
	JobErrorNodeLost = "node_lost"
	// JobErrorStalled: the handler reported no progress for Job.ProgressTimeoutMS.
	JobErrorStalled = "stalled"
	// JobErrorLeaseLost: the node could not reach Redis, and Job.OnLeaseLoss is LeaseLossCancel.
	JobErrorLeaseLost = "lease_lost"
	// JobErrorLost: the job's record was lost with the store's data; the job may have run.
	JobErrorLost = "lost"
	// JobErrorNoMatchingNode: the job expired because no node that fits came within the
	// max_wait_for_node of its pool.
	JobErrorNoMatchingNode = "no_matching_node"
	// JobErrorResultTooLarge: the handler's result is over the node's limit.
	JobErrorResultTooLarge = "result_too_large"
)

func (e *JobError) Error() string { return e.Code + ": " + e.Message }

// Reasons that hold a waiting job back although slots are free; see JobStatus.HeldBy.
const (
	// HeldByTenant: the tenant already runs as many jobs as its limit allows.
	HeldByTenant = "max_running"
	// HeldByKey: as many jobs with its concurrency key run as the key's limit allows.
	HeldByKey = "concurrency_key"
	// HeldByPause: an operator has paused its service, its class or a pool.
	HeldByPause = "pause"
)

// JobStatus is what the scheduler knows about a job. Times are in milliseconds since the Unix epoch
// by Redis' clock; 0 means not yet.
type JobStatus struct {
	ID      string `json:"job_id"`
	Tenant  string `json:"tenant"`
	Service string `json:"service"`
	// Class is the id of the job's class, see [ValidateClassID]. Jobs of a class fit the same
	// nodes.
	Class string `json:"class,omitempty"`
	State State  `json:"state"`
	// Node is the node on which the job runs or ran last, and Attempt the number of that try, from
	// 1; "" and 0 before the first. A job that waits for its next attempt, in StateWaiting or
	// StateMoving, has no node.
	Node    string `json:"node"`
	Attempt int    `json:"attempt"`
	Slots   int    `json:"slots"`
	// Result is the handler's result; set only in StateSucceeded.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is the last failure. It is set in StateFailed and StateDead, and in StateExpired and
	// StateRetryWait after a failed attempt. In StateExpired it is also set for lack of a node.
	Error *JobError `json:"error,omitempty"`
	// Progress is the last progress that a handler of the job reported. It is absent if there is
	// none, in listings, and in results that are sent by themselves.
	Progress *Progress `json:"progress,omitempty"`
	// Failures counts the attempts that failed.
	Failures int `json:"failures,omitempty"`
	Priority int `json:"priority,omitempty"`
	// DeadlineMS is the time at which the job expires; 0 is never.
	DeadlineMS int64 `json:"deadline_ms,omitempty"`
	// RunAtMS is the time at which the job begins to wait for a slot. It is set in StateScheduled
	// and StateRetryWait when the job is read or listed; 0 otherwise.
	RunAtMS int64 `json:"run_at_ms,omitempty"`
	// Position is the job's place in its queue, from 1, at the time of the look-up; 0 if it does
	// not wait, and in listings.
	Position int `json:"position,omitempty"`
	// HeldBy is the reason that a waiting job does not start, at the time of the look-up.
	// HeldByTenant and HeldByKey keep the job out of its queue; HeldByPause stops the whole queue.
	// It is empty if nothing holds the job back, and in listings.
	HeldBy string `json:"held_by,omitempty"`
	// WaitsForPool names the pool whose next node a waiting job needs: no node fits, and the pool's
	// configuration says that its nodes will. It is empty in listings.
	WaitsForPool string `json:"waits_for_pool,omitempty"`
	// NodeByMS is the time at which the job expires if no node fits it then. It is set until the
	// first attempt begins, for a job that was accepted although no node fitted. 0 is never.
	NodeByMS      int64 `json:"node_by_ms,omitempty"`
	SubmittedAtMS int64 `json:"submitted_at_ms"`
	AssignedAtMS  int64 `json:"assigned_at_ms"`
	FinishedAtMS  int64 `json:"finished_at_ms,omitempty"`
	// Attempts lists the last MaxPastAttempts attempts that did not end the job well, the oldest
	// first. It is absent if there are none, in listings, and in results that are sent by
	// themselves.
	Attempts []PastAttempt `json:"attempts,omitempty"`
	// Schedule names the schedule that made the job, or the job that it was submitted again from.
	Schedule string `json:"schedule,omitempty"`
	// RequeuedAs is the id of the job as which this one was submitted again, of the last one if
	// that was done more than once. RequeuedFrom is the id of the job that this one repeats.
	RequeuedAs   string `json:"requeued_as,omitempty"`
	RequeuedFrom string `json:"requeued_from,omitempty"`
}

// MaxPastAttempts is the most attempts that JobStatus.Attempts has.
const MaxPastAttempts = 20

// PastAttempt is an attempt that did not end its job well. Attempts that a process of an older
// release ended are missing.
type PastAttempt struct {
	// Attempt is the number of the try, from 1.
	Attempt int    `json:"attempt"`
	Node    string `json:"node"`
	// BeganAtMS and EndedAtMS are by Redis' clock. BeganAtMS is 0 if that is not known.
	BeganAtMS int64      `json:"began_at_ms"`
	EndedAtMS int64      `json:"ended_at_ms"`
	Ended     AttemptEnd `json:"ended"`
	// Code is the code of the error. It is empty if there was none, or if it has other characters
	// than letters, digits and ._:/-; it is cut after 64 bytes.
	Code string `json:"code,omitempty"`
}

// AttemptEnd says how an attempt ended.
type AttemptEnd string

// The ends of attempts.
const (
	// AttemptFailed: the handler returned an error, or its node reported that it could not go on.
	AttemptFailed AttemptEnd = "failed"
	// AttemptLost: the node fell silent, or its agent restarted. It counts as a failure.
	AttemptLost AttemptEnd = "lost"
	// AttemptHandedBack: the node left or stopped before the handler was done. That is no failure.
	AttemptHandedBack AttemptEnd = "handed_back"
	// AttemptCancelled: a client stopped the job.
	AttemptCancelled AttemptEnd = "cancelled"
	// AttemptExpired: the deadline passed.
	AttemptExpired AttemptEnd = "expired"
)

// MaxProgressBytes is the largest progress value that a handler can report, as JSON.
const MaxProgressBytes = 4 << 10

// Progress is a handler's report about a running job. Of two reports the later one has the higher
// Attempt or, within one attempt, the higher Seq.
type Progress struct {
	// Attempt is the number of the try, from 1.
	Attempt int `json:"attempt"`
	// Seq counts the reports of the attempt, from 1. Numbers are missing where a later report
	// replaced one that had not been sent yet.
	Seq int64 `json:"seq"`
	// AtMS is the time at which Redis took the report in, in milliseconds since the Unix epoch by
	// Redis' clock.
	AtMS int64 `json:"at_ms"`
	// Value is any JSON value of at most MaxProgressBytes, as the handler gave it.
	Value json.RawMessage `json:"value"`
}

// After reports whether p is later than q; anything is later than the zero value.
func (p *Progress) After(q *Progress) bool {
	return p.Attempt > q.Attempt || p.Attempt == q.Attempt && p.Seq > q.Seq
}
