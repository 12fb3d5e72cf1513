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

// MaxAffinityKeyLength is the longest affinity key, in bytes.
const MaxAffinityKeyLength = 128

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
		return invalid(path+".slots", "is %d, expected 1 to %d (0 or absent means 1)", j.Slots, MaxSlots)
	}
	if !utf8.ValidString(j.AffinityKey) || len(j.AffinityKey) > MaxAffinityKeyLength || strings.ContainsFunc(j.AffinityKey, isControl) {
		return invalid(path+".affinity_key", "is not a key, expected at most %d bytes of UTF-8 without control characters", MaxAffinityKeyLength)
	}
	// json.Valid alone lets strings pass that are not UTF-8 and would end the
	// WebSocket session of whoever is sent them.
	if len(j.Payload) > 0 && !(utf8.Valid(j.Payload) && json.Valid(j.Payload)) {
		return invalid(path+".payload", "is not valid JSON in UTF-8")
	}
	if len(j.TraceParent) > 64 || strings.ContainsFunc(j.TraceParent, isControl) {
		return invalid(path+".traceparent", "is not a W3C traceparent")
	}
	return j.Requirement.validate(path + ".requirement")
}

// SlotCount is Slots with its default applied.
func (j *Job) SlotCount() int { return max(j.Slots, 1) }

// State is where a job is in its life.
type State string

// The states that this release uses. The last three are terminal.
const (
	StateRunning    State = "running"
	StateCancelling State = "cancelling"
	StateSucceeded  State = "succeeded"
	StateFailed     State = "failed"
	StateCancelled  State = "cancelled"
)

// States lists every state, in the order of a job's life.
func States() []State {
	return []State{StateRunning, StateCancelling, StateSucceeded, StateFailed, StateCancelled}
}

// Terminal reports whether a job in this state will never change again.
func (s State) Terminal() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCancelled
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
	// JobErrorNodeLost: the node's agent restarted and so lost the job.
	JobErrorNodeLost = "node_lost"
	// JobErrorLost: the job's record was lost with the store's data; it may have run.
	JobErrorLost = "lost"
	// JobErrorResultTooLarge: the handler's result is over the node's limit.
	JobErrorResultTooLarge = "result_too_large"
)

func (e *JobError) Error() string { return e.Code + ": " + e.Message }

// JobStatus is a job's record: what is known of it now. Times are Redis' clock,
// in milliseconds since the Unix epoch; 0 means not yet.
type JobStatus struct {
	ID      string `json:"job_id"`
	Tenant  string `json:"tenant"`
	Service string `json:"service"`
	State   State  `json:"state"`
	// Node and Attempt say where it runs or ran, and which try that is, from 1.
	Node    string `json:"node"`
	Attempt int    `json:"attempt"`
	Slots   int    `json:"slots"`
	// Result is the handler's result; set only in StateSucceeded.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is set only in StateFailed.
	Error         *JobError `json:"error,omitempty"`
	SubmittedAtMS int64     `json:"submitted_at_ms"`
	AssignedAtMS  int64     `json:"assigned_at_ms"`
	FinishedAtMS  int64     `json:"finished_at_ms,omitempty"`
}

// DecodeStrict decodes exactly one JSON value into v and refuses unknown fields
// and trailing data. path names the value in errors, which are [*Error]s with
// code [CodeInvalidArgument].
func DecodeStrict(path string, data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return &Error{Code: CodeInvalidArgument, Field: path, Message: path + ": " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return invalid(path, "is followed by further data, expected one JSON value")
	}
	return nil
}
