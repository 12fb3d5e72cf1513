package cell

import (
	"encoding/json"
	"time"

	"github.com/freeslot/freeslot"
)

// Revision is a cell's counter: every announced change of a node takes the next.
type Revision = uint64

// Epoch is one incarnation (boot id) of a node's agent.
type Epoch = string

// ImportEpoch is the epoch of a node that was registered without an agent: it is
// draining until an agent registers.
const ImportEpoch Epoch = "import"

// Attempt names one try of one job; it is what the ownership check compares.
type Attempt struct {
	Job string
	N   int
}

// Registration is the answer to Register.
type Registration struct {
	Revision Revision
	// Lost are the jobs of the superseded epoch: they go to their next attempts, or are
	// dead. Empty when the same epoch registers again.
	Lost []string
	// HeartbeatLimit is the silence after which replicas take the node for dead.
	HeartbeatLimit time.Duration
}

// Heartbeat is what an agent says each time.
type Heartbeat struct {
	Node   string
	Epoch  Epoch
	Status freeslot.Status
	// Resources are the figures of the node as a JSON object. None, nil or empty, is a sign
	// of life alone: what was said last stays in force. After Register under a new epoch, or
	// when the node was unknown, nothing is in force until a heartbeat says it again.
	Resources json.RawMessage
	// Running are the attempts that the agent holds, finished ones whose
	// completion is not yet acknowledged included.
	Running []Attempt
	// Read is the id of the last dispatch entry that the agent has taken in;
	// older ones are trimmed. Empty means none.
	Read string
}

// HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	Revision Revision
	Used     int
	// Start are attempts that the node owns and did not name.
	Start []Attempt
	// Stop are attempts that it named and does not own.
	Stop []Attempt
	// Cancel are attempts that it owns and that somebody asked to cancel.
	Cancel []Attempt
}

// Submission is one job to place.
type Submission struct {
	// JobID is made by NewJobID; a repeated Submission must keep it.
	JobID  string
	Tenant string
	Job    *freeslot.Job
	// Candidates are tried in order; the first with enough free slots gets the
	// job. 1 to MaxCandidates of them; for Enqueue there may be none.
	Candidates []string
	// Class is the job's.
	Class Class
	// Weight is the tenant's share beside others whose jobs wait in the same class, 1 to
	// MaxWeight. 0 means 1. Enqueue alone heeds it.
	Weight int
	// ReplyTo is the replica whose reply stream gets the result.
	ReplyTo string
	// Gates bound how many jobs like this run or wait. Enqueue alone heeds them.
	Gates []Gate
	// Once, where it is not empty, has the job created once although its record may be gone
	// by the time of a repetition: the Placement of that has JobID as its Owner. It is kept
	// as long as an idempotency key, which the job has none of, or until ForgetOnce. Enqueue
	// alone heeds it.
	Once string
}

// Class is what jobs that fit the same nodes have in common.
type Class struct {
	// ID is a hash of the canonical form, 16 hexadecimal digits.
	ID string
	// Definition is a ClassDefinition in JSON.
	Definition string
}

// ClassDefinition tells which nodes fit.
type ClassDefinition struct {
	Service     string               `json:"service"`
	Requirement freeslot.Requirement `json:"requirement,omitzero"`
}

// Placement is what became of a Submission.
type Placement struct {
	// Assigned is false when every candidate refused.
	Assigned bool
	// Behind is true when jobs of the class wait: the job was not offered to the
	// candidates, because it must not pass them. Enqueue it.
	Behind bool
	// Waiting is true when the job waits in the queue of its class, at Position, from 1.
	// A job for later waits at 0.
	Waiting  bool
	Position int
	// Owner is set when the idempotency key belongs to another job, which this is; the
	// submitted one was not created. Differs is true when their specs differ.
	Owner   string
	Differs bool
	// Crowded is true when as many jobs of the tenant wait as may: this one was not created.
	Crowded bool
	// SubmittedAtMS is when a job that Enqueue has wait came to do so.
	SubmittedAtMS int64
	// Repeated is true when the record was there already: an earlier call with
	// this id had been applied although its answer was lost. Node and Attempt
	// are then the record's.
	Repeated     bool
	Node         string
	Attempt      int
	AssignedAtMS int64
	// Used is the number of slots in use on Node after this call.
	Used int
	// Refusals say why the candidates before Node, or all of them, did not get the job.
	Refusals []Refusal
}

// RefusalReason says why a candidate did not get a job.
type RefusalReason string

// The reasons of a refusal.
const (
	RefusedFull     RefusalReason = "full"
	RefusedGone     RefusalReason = "gone"
	RefusedDraining RefusalReason = "draining"
	RefusedSilent   RefusalReason = "silent"
)

// Refusal carries a candidate's fresh state back to the cache.
type Refusal struct {
	Node   string
	Reason RefusalReason
	// Used and MaxConcurrency are meaningless for RefusedGone.
	Used           int
	MaxConcurrency int
}

// Completion is the end of one attempt.
type Completion struct {
	Node    string
	Epoch   Epoch
	Attempt Attempt
	// State is StateSucceeded, StateFailed or StateCancelled.
	State freeslot.State
	// Result is any JSON value, for StateSucceeded; nil is null. It must not be
	// changed any more: a call that was given up can still be sending it.
	Result json.RawMessage
	// Error is set for StateFailed.
	Error *freeslot.JobError
	// Again says, for StateFailed, whether there is to be another attempt, and
	// RetryDelay after how long. A job that is being cancelled or that has no attempts
	// or time left ends all the same.
	Again      Again
	RetryDelay time.Duration
	// Begun gets the jobs that begin on the node with this call, if there are any, before
	// Complete returns. It must not block. An answer that is lost takes them with it: like
	// entries of the dispatch stream that are missed, the next heartbeat names them. nil has them
	// delivered by the dispatch stream. Of items that share a call the first that has one gets them all.
	Begun func([]Dispatch)
}

// Again is whether a job that failed is to be tried again.
type Again uint8

const (
	// Never says that the job has failed.
	Never Again = iota
	// Retry counts the failure; the job is dead with the last one that it may have.
	Retry
	// HandBack is for a node that stops; that is no failure of the job.
	HandBack
)

// Taken is what a node got by Take.
type Taken struct {
	// Jobs is the number of jobs that began.
	Jobs int
	// Used and MaxConcurrency are the node's after the call.
	Used           int
	MaxConcurrency int
	// Refusal is why the node gets no jobs at all; "" where it may.
	Refusal RefusalReason
	// Superseded is true when the node has another epoch: nothing was looked at.
	Superseded bool
}

// Waiting is which classes have jobs that wait in a cell.
type Waiting struct {
	// Revision changes with the set of classes.
	Revision uint64
	// Same is true when it is the one that the caller knew: Classes is then nil.
	Same    bool
	Classes []Class
}

// Reaped is what became of a silent node.
type Reaped struct {
	// Gone is true when the node was taken out; else it lives, has another epoch or
	// was gone before.
	Gone bool
	// Jobs are those that it owned: they go to their next attempts, or are dead.
	Jobs []string
}

// Due is what Cell.Due did.
type Due struct {
	// Classes have jobs whose time to wait for a slot has come.
	Classes []Class
	// Expired is the number of jobs that passed their deadline, those included that run
	// and are asked to stop.
	Expired int
	// More is true when there was more to do than the limit allowed.
	More bool
}

// CompletionOutcome says what a Completion did.
type CompletionOutcome string

// The outcomes of a completion.
const (
	// Completed: stored, slot freed, result sent.
	Completed CompletionOutcome = "completed"
	// CompletedBefore: this attempt had ended before, by an earlier call or because
	// its node was taken over; nothing changed.
	CompletedBefore CompletionOutcome = "completed_before"
	// CompletedStale: the node does not own this attempt; nothing changed.
	CompletedStale CompletionOutcome = "stale"
)

// Dispatch is what an entry of a node's dispatch stream says of one job.
type Dispatch struct {
	// ID is the entry's position in the stream: several jobs can have the same.
	ID      string
	Attempt Attempt
	// Cancel is true for a control entry: stop this attempt.
	Cancel bool
	Tenant string
	// Job is nil for control entries and where the job is too large for the
	// stream; read the latter by Spec.
	Job *freeslot.Job
}

// Reply is what an entry of a replica's reply stream says of one job.
type Reply struct {
	// ID is the entry's position in the stream: several jobs can have the same.
	ID     string
	Status freeslot.JobStatus
	// Used is the number of slots in use on Status.Node after the job ended.
	Used int
	// Partial is true when the result was too large for the stream: Status has
	// all but Result, which is read by Job.
	Partial bool
	// Assigned is true when the job got a slot after it had waited: Status has Node,
	// Attempt, State and AssignedAtMS.
	Assigned bool
	// Requeued is true when an attempt of the job was lost or failed, and it waits again:
	// only Status.ID is set, and Class.
	Requeued bool
	Class    string
	// Progress is what a handler of the job told: only Status.ID is set beside it.
	Progress *freeslot.Progress
	// Detached is true when another replica attached to the job: it will get
	// the result, this one will not. Only Status.ID is set then.
	Detached bool
}

// NodeState is a node as Redis has it.
type NodeState struct {
	// Node is in its normal form. Its lists and maps may be those of other nodes too: they
	// must not be changed.
	Node   freeslot.Node
	Epoch  Epoch
	Status freeslot.Status
	Used   int
	// Resources are what the node said last of its machine; nil when it said nothing yet,
	// or what is no JSON.
	Resources       json.RawMessage
	Revision        Revision
	RegisteredAtMS  int64
	LastHeartbeatMS int64
	// Gone is true for a tombstone: the node left at Revision; only Node.ID is set.
	Gone bool
	// Broken says which fields of the profile cannot be read or are not valid; they are
	// empty, and the node fits no job.
	Broken error
}

// Changes is one page of what changed since a revision.
type Changes struct {
	// Generation is the random name of this revision counter; it differs after
	// the counter was lost.
	Generation string
	// Revision is the cell's at the time of the call.
	Revision Revision
	// NowMS is Redis' clock.
	NowMS int64
	Nodes []NodeState
	// More is true when the page was full: ask again since Next.
	More bool
	Next Revision
	// Incomplete is true when tombstones newer than since have been dropped:
	// only a replacing load will do.
	Incomplete bool
}

// JobFilter narrows a listing. Zero fields match everything.
type JobFilter struct {
	Tenant string
	State  freeslot.State
	// Class is a freeslot.ClassID.
	Class string
}

// JobPage is one page of a listing.
type JobPage struct {
	Jobs []freeslot.JobStatus
	// Cursor continues the listing; empty at its end. A page can be short, even
	// empty, and still have a Cursor: filters are applied to what was read.
	Cursor string
	// Unreachable are the cells that did not answer, whose jobs are not in the page;
	// nil when all did.
	Unreachable []int
}
