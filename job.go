package freeslot

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// DefaultMaxPayloadBytes is the largest payload that a replica accepts unless
// it is configured otherwise.
const DefaultMaxPayloadBytes = 256 << 10

// MaxSlots is the most slots that one job can ask for.
const MaxSlots = 1 << 16

// MaxAffinityKeyLength is the longest affinity key and idempotency key, in bytes.
const MaxAffinityKeyLength = 128

// Bounds and defaults of how a job is queued and repeated.
const (
	// MaxPriority is the highest priority of a job.
	MaxPriority = 9
	// DefaultMaxAttempts is Job.MaxAttempts where it is 0, and MaxMaxAttempts its bound.
	DefaultMaxAttempts = 3
	MaxMaxAttempts     = 100
	// MaxTimeoutMS bounds Job.TimeoutMS: 30 days.
	MaxTimeoutMS = 30 * 24 * 60 * 60 * 1000
	// maxTimeMS is in the year 5138; scripts write times of at most 14 digits exactly.
	maxTimeMS = 99_999_999_999_999
)

// Job is a unit of work as a client submits it.
type Job struct {
	// Service names the handler that runs the job; the node must have it installed.
	Service string `json:"service"`
	// Payload is any JSON value, handed to the handler as it is. Nil is JSON null.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Requirement is what the node must offer besides the service. The zero
	// value asks for nothing.
	Requirement Requirement `json:"requirement,omitzero"`
	// AffinityKey keeps jobs with the same key on the same node while that has room,
	// so that a session stays where its model is warm. It has at most
	// MaxAffinityKeyLength bytes of UTF-8 without control characters; empty is no
	// affinity. It plays no part in which nodes fit.
	AffinityKey string `json:"affinity_key,omitempty"`
	// Slots is how much of a node's capacity the job takes while it runs. 0 means 1.
	Slots int `json:"slots,omitempty"`
	// Priority orders jobs that wait for the same nodes: a higher one is served first.
	// 0, the lowest, to MaxPriority.
	Priority int `json:"priority,omitempty"`
	// MaxAttempts is how often the job may fail before it is given up as dead: the loss
	// of its node counts, and so does an error that the handler calls retryable. Any
	// other error fails the job at once. 0 means DefaultMaxAttempts.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// TimeoutMS is how long the job may take from its submission to its end, in
	// milliseconds of Redis' clock; then it expires. 0 is no limit.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// RunAtMS is when the job is to begin at the earliest, in milliseconds since the Unix
	// epoch by Redis' clock: until then it is scheduled. TimeoutMS counts from then. 0, or
	// a time that has passed, is at once.
	RunAtMS int64 `json:"run_at_ms,omitempty"`
	// ProgressTimeoutMS is how long the handler may go without telling progress, in
	// milliseconds of its node's clock, from the moment that it is called: then it is
	// stopped, and the attempt has failed with JobErrorStalled. The job is tried again
	// while MaxAttempts lasts. 0 is no limit.
	ProgressTimeoutMS int64 `json:"progress_timeout_ms,omitempty"`
	// OnLeaseLoss says whether the handler goes on when its node is cut off from Redis
	// for the heartbeat limit. Empty means LeaseLossContinue.
	OnLeaseLoss OnLeaseLoss `json:"on_lease_loss,omitempty"`
	// IdempotencyKey makes a submission repeatable: as long as the key is kept (a day
	// unless the replicas are configured otherwise) a second job of the tenant with the
	// same key is not created, and its submitter gets the first one's id and result. It has
	// the form of AffinityKey; empty is none.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// ConcurrencyKey bounds how many jobs of the tenant with the same key run at a time:
	// ConcurrencyLimit of them, and further ones are held back, in the order of their priority and age. Jobs of
	// one key should ask for the same nodes: with several cells the limit is one of each cell that
	// has jobs of the key. It has the form of AffinityKey; empty is none.
	ConcurrencyKey string `json:"concurrency_key,omitempty"`
	// ConcurrencyLimit is 1 to MaxConcurrencyLimit; that of the job submitted last holds
	// for all. 0 means 1.
	ConcurrencyLimit int `json:"concurrency_limit,omitempty"`
	// TraceParent is the W3C trace context of the submitter; empty when it is not traced.
	TraceParent string `json:"traceparent,omitempty"`
}

// Validate checks everything but the payload's size, which is a limit of the
// replica. path is put before the field names in errors ("job", "jobs[3]").
// The error is an [*Error] with code [CodeInvalidArgument].
func (j *Job) Validate(path string) error {
	if err := ValidateName(path+".service", j.Service); err != nil {
		return err
	}
	if j.Slots < 0 || j.Slots > MaxSlots {
		return Invalid(path+".slots", "is %d, expected 1 to %d (0 or absent means 1)", j.Slots, MaxSlots)
	}
	for _, key := range []struct{ field, text string }{{".affinity_key", j.AffinityKey}, {".idempotency_key", j.IdempotencyKey}, {".concurrency_key", j.ConcurrencyKey}} {
		if !utf8.ValidString(key.text) || len(key.text) > MaxAffinityKeyLength || strings.ContainsFunc(key.text, isControl) {
			return Invalid(path+key.field, "is not a key, expected at most %d bytes of UTF-8 without control characters", MaxAffinityKeyLength)
		}
	}
	// UTF-8 because other text would end the WebSocket session of whoever is sent it.
	if len(j.Payload) > 0 && (!utf8.Valid(j.Payload) || !json.Valid(j.Payload)) {
		return Invalid(path+".payload", "is not valid JSON in UTF-8")
	}
	if len(j.TraceParent) > 64 || strings.ContainsFunc(j.TraceParent, isControl) {
		return Invalid(path+".traceparent", "is not a W3C traceparent")
	}
	if err := j.validateQueueing(path); err != nil {
		return err
	}
	if err := j.validateSupervision(path); err != nil {
		return err
	}
	return j.Requirement.validate(path + ".requirement")
}

func (j *Job) validateQueueing(path string) error {
	switch {
	case j.Priority < 0 || j.Priority > MaxPriority:
		return Invalid(path+".priority", "is %d, expected 0 to %d", j.Priority, MaxPriority)
	case j.MaxAttempts < 0 || j.MaxAttempts > MaxMaxAttempts:
		return Invalid(path+".max_attempts", "is %d, expected 1 to %d (0 or absent means %d)", j.MaxAttempts, MaxMaxAttempts, DefaultMaxAttempts)
	case j.ConcurrencyLimit < 0 || j.ConcurrencyLimit > MaxConcurrencyLimit:
		return Invalid(path+".concurrency_limit", "is %d, expected 1 to %d (0 or absent means 1)", j.ConcurrencyLimit, MaxConcurrencyLimit)
	case j.ConcurrencyLimit != 0 && j.ConcurrencyKey == "":
		return Invalid(path+".concurrency_limit", "is %d without a concurrency_key, expected both or neither", j.ConcurrencyLimit)
	case j.RunAtMS < 0 || j.RunAtMS > maxTimeMS:
		return Invalid(path+".run_at_ms", "is %d, expected milliseconds since the Unix epoch", j.RunAtMS)
	case j.TimeoutMS < 0 || j.TimeoutMS > MaxTimeoutMS:
		return Invalid(path+".timeout_ms", "is %d, expected 1 to %d (0 or absent means no limit)", j.TimeoutMS, MaxTimeoutMS)
	}
	return nil
}

// AttemptLimit is MaxAttempts with its default applied.
func (j *Job) AttemptLimit() int {
	if j.MaxAttempts == 0 {
		return DefaultMaxAttempts
	}
	return j.MaxAttempts
}

// KeyLimit is ConcurrencyLimit with its default applied.
func (j *Job) KeyLimit() int { return max(j.ConcurrencyLimit, 1) }

// SlotCount is Slots with its default applied.
func (j *Job) SlotCount() int { return max(j.Slots, 1) }

// State is where a job is in its life.
type State string

// The states that this release uses. Those from StateSucceeded on are terminal.
const (
	// StateScheduled: for later, see Job.RunAtMS.
	StateScheduled State = "scheduled"
	// StateWaiting: for a slot on a node that fits.
	StateWaiting State = "waiting"
	// StateMoving: from a part of the store that has no nodes left for it to one that has.
	StateMoving State = "moving"
	// StateRetryWait: an attempt failed, and the next one is due later.
	StateRetryWait  State = "retry_wait"
	StateRunning    State = "running"
	StateCancelling State = "cancelling"
	StateSucceeded  State = "succeeded"
	// StateFailed: the handler returned an error that another attempt would not mend.
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"
	// StateExpired: the job was not done by its deadline.
	StateExpired State = "expired"
	// StateDead: it failed as often as it may.
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

// JobError says why a job failed.
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
	// JobErrorNoHandler: the node was given a job for a service that it does not run.
	JobErrorNoHandler = "no_handler"
	// JobErrorInterrupted: the node stopped before the job was done.
	JobErrorInterrupted = "interrupted"
	// JobErrorNodeLost: the node fell silent, or its agent restarted and so lost the job.
	JobErrorNodeLost = "node_lost"
	// JobErrorStalled: the handler told no progress for Job.ProgressTimeoutMS.
	JobErrorStalled = "stalled"
	// JobErrorLeaseLost: the node was cut off, and Job.OnLeaseLoss is LeaseLossCancel.
	JobErrorLeaseLost = "lease_lost"
	// JobErrorLost: the job's record was lost with the store's data; it may have run.
	JobErrorLost = "lost"
	// JobErrorResultTooLarge: the handler's result is over the node's limit.
	JobErrorResultTooLarge = "result_too_large"
)

func (e *JobError) Error() string { return e.Code + ": " + e.Message }

// What can hold a waiting job back although slots are free; see JobStatus.HeldBy.
const (
	// HeldByTenant: as many jobs of the tenant run as may.
	HeldByTenant = "max_running"
	// HeldByKey: as many jobs with its concurrency key run as may.
	HeldByKey = "concurrency_key"
	// HeldByPause: an operator has paused its service, its class or a pool.
	HeldByPause = "pause"
)

// JobStatus is a job's record: what is known of it now. Times are Redis' clock,
// in milliseconds since the Unix epoch; 0 means not yet.
type JobStatus struct {
	ID      string `json:"job_id"`
	Tenant  string `json:"tenant"`
	Service string `json:"service"`
	// Class names the requirement of the job: jobs of a class fit the same nodes. It is the
	// [ClassID].
	Class string `json:"class,omitempty"`
	State State  `json:"state"`
	// Node and Attempt say where it runs or ran last, and which try that is, from 1; ""
	// and 0 before the first. A job that waits for its next attempt, in StateWaiting or
	// StateMoving, has no node.
	Node    string `json:"node"`
	Attempt int    `json:"attempt"`
	Slots   int    `json:"slots"`
	// Result is the handler's result; set only in StateSucceeded.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is what failed last: set in StateFailed and StateDead, and in StateExpired
	// and StateRetryWait where an attempt had failed.
	Error *JobError `json:"error,omitempty"`
	// Progress is what a handler of the job told last; absent where none has, in listings
	// and in results that are sent by themselves.
	Progress *Progress `json:"progress,omitempty"`
	// Failures counts the attempts that failed.
	Failures int `json:"failures,omitempty"`
	Priority int `json:"priority,omitempty"`
	// DeadlineMS is when the job expires; 0 is never.
	DeadlineMS int64 `json:"deadline_ms,omitempty"`
	// RunAtMS is when the job goes on to wait for a slot: in StateScheduled, and in
	// StateRetryWait in listings; 0 otherwise.
	RunAtMS int64 `json:"run_at_ms,omitempty"`
	// Position is the job's place in the queue of jobs that wait for the same nodes,
	// from 1, when it was looked up; 0 when it does not wait, and in listings.
	Position int `json:"position,omitempty"`
	// HeldBy is what keeps a waiting job out of that queue, HeldByTenant or HeldByKey, or what
	// keeps the queue from moving, HeldByPause, when it was looked up; empty when nothing does, and in listings.
	HeldBy        string `json:"held_by,omitempty"`
	SubmittedAtMS int64  `json:"submitted_at_ms"`
	AssignedAtMS  int64  `json:"assigned_at_ms"`
	FinishedAtMS  int64  `json:"finished_at_ms,omitempty"`
}

// DecodeStrict decodes exactly one JSON value into v and refuses unknown fields
// and trailing data. path names the value in errors, which are [*Error]s with
// code [CodeInvalidArgument]; those of one of its fields name that.
func DecodeStrict(path string, data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return undecoded(path, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Invalid(path, "is followed by further data, expected one JSON value")
	}
	return nil
}
