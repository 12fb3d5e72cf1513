package faults

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
)

// Kind tells what happened in an Event.
type Kind string

// The kinds of events.
const (
	// Submitted: a client is about to submit.
	Submitted Kind = "submitted"
	// Accepted, Refused and Unknown are the client's answers. An unknown submission may have been
	// accepted.
	Accepted Kind = "accepted"
	Refused  Kind = "refused"
	Unknown  Kind = "unknown"
	// CancelAsked: the client is about to ask for the job to be cancelled.
	CancelAsked Kind = "cancel_asked"
	// Learned: the client that submitted the job has its end. AskedAgain: another client has it
	// too, later.
	Learned    Kind = "learned"
	AskedAgain Kind = "asked_again"
	// NoAnswer: the client learned that the job's end will not come.
	NoAnswer Kind = "no_answer"
	// Told: the client has progress of the job; Result names who reported it.
	Told Kind = "told"
	// Looked: a looker read the job; From is the time at which it sent the request.
	Looked Kind = "looked"
	// Begun: a handler was called. Ended: it has run to its end. Aborted: the agent broke the
	// request off.
	Begun   Kind = "begun"
	Ended   Kind = "ended"
	Aborted Kind = "aborted"
	// Used: Slots is the number of slots in use on the node, by Redis.
	Used Kind = "used"
	// Drained: an operator got the answer that the node is drained. Undraining: the operator is
	// about to end that.
	Drained    Kind = "drained"
	Undraining Kind = "undraining"
	// Fault: Note tells what was broken or repaired.
	Fault Kind = "fault"
)

// Event is one entry of a history. Times count from the beginning of the run.
type Event struct {
	At   time.Duration `json:"at"`
	From time.Duration `json:"from,omitempty"`
	Kind Kind          `json:"kind"`
	// N numbers the submissions, from 1; 0 if no job is concerned.
	N       int            `json:"n,omitempty"`
	Job     string         `json:"job,omitempty"`
	Node    string         `json:"node,omitempty"`
	Attempt int            `json:"attempt,omitempty"`
	State   freeslot.State `json:"state,omitempty"`
	Slots   int            `json:"slots,omitempty"`
	// Failures counts the failed attempts, by the source of the state.
	Failures int `json:"failures,omitempty"`
	// Result is the handler's answer, if the event brings a result.
	Result *Result `json:"result,omitempty"`
	// Task is set for Submitted.
	Task *Task  `json:"task,omitempty"`
	Who  string `json:"who,omitempty"`
	Note string `json:"note,omitempty"`
	// Code is the code of the job's error, if the source of the state has one, or of the error with
	// which a submission was refused.
	Code string `json:"code,omitempty"`
}

// Task tells what a job is to do; it is its payload.
type Task struct {
	N int `json:"n"`
	// TakeMS is how long the handler takes.
	TakeMS int `json:"take_ms"`
	Slots  int `json:"slots"`
	// Fatal is true if the handler fails for good. Refusals is the number of first attempts that
	// fail for the time being.
	Fatal    bool `json:"fatal,omitempty"`
	Refusals int  `json:"refusals,omitempty"`
	// CancelMS is the time after its acceptance at which the client cancels the job, and TimeoutMS
	// its timeout; 0 is never.
	CancelMS  int   `json:"cancel_ms,omitempty"`
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	Priority  int   `json:"priority,omitempty"`
	// Tenant is the owner of the job, "" for the only one.
	Tenant string `json:"tenant,omitempty"`
	// Class is the class of nodes that may run it, "" for any.
	Class string `json:"class,omitempty"`
	// Keyed is true if it is submitted twice, under one idempotency key.
	Keyed bool `json:"keyed,omitempty"`
	// Serial is its concurrency key, "" for none.
	Serial string `json:"serial,omitempty"`
	// DelayMS is how long after its submission it may begin.
	DelayMS int64 `json:"delay_ms,omitempty"`
	// Tells is true if the handler reports progress. Stalls is true if the first attempt never
	// does, nor ends.
	Tells  bool `json:"tells,omitempty"`
	Stalls bool `json:"stalls,omitempty"`
}

// Result is the handler's answer: who it was.
type Result struct {
	N       int    `json:"n"`
	Job     string `json:"job"`
	Node    string `json:"node"`
	Attempt int    `json:"attempt"`
}

// Record is a job in the form that Redis has at the end.
type Record struct {
	Job     string         `json:"job"`
	N       int            `json:"n"`
	State   freeslot.State `json:"state"`
	Node    string         `json:"node"`
	Attempt int            `json:"attempt"`
	Result  *Result        `json:"result,omitempty"`
	Error   string         `json:"error,omitempty"`
	// Failures counts the failed attempts.
	Failures int `json:"failures,omitempty"`
	// AssignedMS is the time at which the last attempt was given to its node, since the Unix epoch.
	AssignedMS int64 `json:"assigned_ms,omitempty"`
}

// Final is what Redis holds when everything has come to rest.
type Final struct {
	Records []Record `json:"records"`
	// Leftovers lists keys that should be empty, with their content.
	Leftovers []string `json:"leftovers"`
}

// Periodic is the number of all jobs that a schedule submits.
const Periodic = -1

// History holds everything that is known about a run.
type History struct {
	// Slots is each node's capacity.
	Slots map[string]int `json:"slots"`
	// Classes are the nodes' classes.
	Classes map[string]string `json:"classes,omitempty"`
	// Running bounds how many jobs of a tenant run at a time, Serial how many of a concurrency key.
	Running map[string]int `json:"running,omitempty"`
	Serial  int            `json:"serial,omitempty"`
	// Runs is the number of jobs that the schedule says it made; their submission is [Periodic].
	Runs int `json:"runs,omitempty"`
	// BeginMS is the time at which the run began, since the Unix epoch.
	BeginMS int64 `json:"begin_ms"`

	Events []Event `json:"-"`
	Final  Final   `json:"final"`
	// Losses are the times at which Redis may have lost writes that it had acknowledged.
	Losses []Loss `json:"losses,omitempty"`
}

// Write writes the history as lines of JSON, the events first.
func (h *History) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for i := range h.Events {
		if err := enc.Encode(&h.Events[i]); err != nil {
			return err
		}
	}
	if err := enc.Encode(h); err != nil {
		return err
	}
	return out.Flush()
}

// Recorder collects events. It is safe for concurrent use: the order of the events is the order of
// the calls.
type Recorder struct {
	begin time.Time
	// forget is true if nothing is kept, for runs that are too long for it.
	forget bool

	mu     sync.Mutex // guards events
	events []Event
}

// NewRecorder begins a history now.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now()} }

// Now returns the time since the beginning.
func (r *Recorder) Now() time.Duration { return time.Since(r.begin) }

// Add records an event as of now.
func (r *Recorder) Add(e Event) {
	if r.forget {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = r.Now()
	r.events = append(r.events, e)
}

// Events returns the events recorded so far. The caller must not change them.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)]
}
