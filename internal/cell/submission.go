package cell

import (
	"fmt"
	"strings"
	"time"

	json "github.com/go-json-experiment/json/v1"

	"github.com/freeslot/freeslot"
)

// MaxCandidates is the most candidates that a Submission can name.
const MaxCandidates = 8

// Submission is one job to place.
type Submission struct {
	// JobID is made by NewJobID; a repeated Submission must keep it.
	JobID  string
	Tenant string
	Job    *freeslot.Job
	// Candidates are tried in order: the first with enough free slots gets the job. There are 1 to
	// MaxCandidates; for EnqueueAll there may be none.
	Candidates []string
	// Class is the job's class.
	Class Class
	// ReplyTo is the replica whose reply stream gets the result.
	ReplyTo string

	// Only EnqueueAll uses the fields that follow.

	// Weight is the tenant's share among tenants whose jobs wait in the same class, 1 to MaxWeight.
	// 0 means 1.
	Weight int
	// Limits bounds how many such jobs run or wait.
	Limits []Limit
	// MaxKinds is how many classes may have waiting jobs because jobs of this tenant came first. A
	// job that would make one more is refused, and so is a job for later of a tenant that has a
	// quarter of them. 0 means that there is no other tenant, and neither bound.
	MaxKinds int
	// Origin says why the job was submitted if no client did.
	Origin Origin
	// NodeWait is how long the job waits for a node that fits, because none is there; it counts from
	// the submission, or from the time of a job for later. Then Due tells of the job. 0 is for a job
	// that a node fits.
	NodeWait time.Duration
	// Once, if not empty, makes sure that the job is created once, even if its record is gone by
	// the time of a repetition. The Placement of a repetition then has JobID as its Owner. Redis
	// remembers Once for as long as an idempotency key, or until ForgetOnce. The job must have no
	// idempotency key.
	Once string
}

// Placement is the result of a Submission.
type Placement struct {
	// Assigned is false if every candidate refused.
	Assigned bool
	// Behind is true if jobs of the class wait already. The job must not pass them, so it was not
	// offered to the candidates. Enqueue it.
	Behind bool
	// Waiting is true if the job waits in the queue of its class at Position, counted from 1. A job
	// for later has Position 0.
	Waiting  bool
	Position int
	// Owner is the job that owns the idempotency key, if the key belongs to another job. The
	// submitted job was not created. Differs is true if the specs of the two differ.
	Owner   string
	Differs bool
	// Crowded is true if the tenant has as many waiting jobs as its limit allows. This one was not
	// created.
	Crowded bool
	// Share says what the tenant has its share of; NoShare if it is not that. This job was not
	// created.
	Share Share
	// SubmittedAtMS is the time at which EnqueueAll put the job into the queue.
	SubmittedAtMS int64
	// Repeated is true if the record existed already: an earlier call with this id was applied,
	// although its answer was lost. Node and Attempt are then taken from the record.
	Repeated     bool
	Node         string
	Attempt      int
	AssignedAtMS int64
	// Used is the number of slots in use on Node after this call.
	Used int
	// Refusals says why the candidates before Node, or all of them, did not get the job.
	Refusals []Refusal
}

// Share is the part of a cell's waiting jobs that one tenant may take.
type Share string

// The shares.
const (
	NoShare    Share = ""
	ShareKinds Share = "kinds" // of classes with waiting jobs
	ShareLater Share = "later" // of jobs for later
)

// RefusalReason says why a candidate did not get a job.
type RefusalReason string

// The reasons of a refusal.
const (
	RefusedFull     RefusalReason = "full"
	RefusedGone     RefusalReason = "gone"
	RefusedDraining RefusalReason = "draining"
	RefusedSilent   RefusalReason = "silent"
)

// refusalReasons maps the letters that scripts use.
var refusalReasons = map[string]RefusalReason{
	"f": RefusedFull, "g": RefusedGone, "d": RefusedDraining, "s": RefusedSilent,
}

// Refusal carries a candidate's fresh state back to the cache.
type Refusal struct {
	Node   string
	Reason RefusalReason
	// Used and MaxConcurrency have no meaning for RefusedGone.
	Used           int
	MaxConcurrency int
}

// SubmitResult is one result of SubmitAll.
type SubmitResult struct {
	Placement Placement
	Err       error
}

// encodedSubmission is a validated submission with its spec.
type encodedSubmission struct {
	Submission
	spec []byte
}

func encodeSubmission(s Submission, candidates int) (encodedSubmission, error) {
	if err := s.validate(candidates); err != nil {
		return encodedSubmission{}, err
	}
	spec, err := json.Marshal(s.Job) // valid UTF-8, as encoding/json writes it, in less than half the time
	if err != nil {
		return encodedSubmission{}, freeslot.Invalid("job", "cannot be encoded: %v", err)
	}
	if s.Class.ID == "" {
		s.Class = ClassOf(s.Job)
	}
	return encodedSubmission{Submission: s, spec: spec}, nil
}

func submissionSize(s encodedSubmission) int { return len(s.spec) + controlOverhead }

// validate does not check the job's contents: the caller did that when the job was submitted.
// candidates is the least number of candidates that the call needs.
func (s *Submission) validate(candidates int) error {
	if len(s.Candidates) < candidates || len(s.Candidates) > MaxCandidates {
		return freeslot.Invalid("candidates", "has %d entries, expected %d to %d", len(s.Candidates), candidates,
			MaxCandidates)
	}
	if err := ValidateJobID("job_id", s.JobID); err != nil {
		return err
	}
	if err := freeslot.ValidateName("tenant", s.Tenant); err != nil {
		return err
	}
	if s.ReplyTo != "" {
		if err := freeslot.ValidateName("reply_to", s.ReplyTo); err != nil {
			return err
		}
	}
	if err := s.Origin.validate(); err != nil {
		return err
	}
	if s.Job == nil {
		return freeslot.Invalid("job", "is missing")
	}
	if s.Job.Slots < 0 || s.Job.Slots > freeslot.MaxSlots {
		return freeslot.Invalid("job.slots", "is %d, expected 0 to %d", s.Job.Slots, freeslot.MaxSlots)
	}
	if s.Job.Priority < 0 || s.Job.Priority > freeslot.MaxPriority || s.Job.MaxAttempts < 0 || s.Job.TimeoutMS < 0 {
		return freeslot.Invalid("job", "has a priority, max_attempts or timeout_ms that was not validated")
	}
	for _, l := range s.Limits {
		if l.most < 1 || l.name == "" {
			return freeslot.Invalid("limits", "has a limit of %d, expected 1 or more", l.most)
		}
	}
	for _, node := range s.Candidates {
		if err := freeslot.ValidateName("candidates", node); err != nil {
			return err
		}
	}
	if id := s.Class.ID; id != "" && (len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "") {
		return freeslot.Invalid("class", "is %q, expected 16 hexadecimal digits", id)
	}
	return nil
}

// overShare returns the error for a job whose tenant has its share.
func (s *Submission) overShare(share Share) *freeslot.Error {
	message := fmt.Sprintf("tenant %s has a quarter of the jobs for later that this cell keeps", s.Tenant)
	if share == ShareKinds {
		message = fmt.Sprintf("jobs of tenant %s wait with %d different requirements or services, its max_kinds",
			s.Tenant, s.MaxKinds)
	}
	return &freeslot.Error{Code: freeslot.CodeOverloaded, RetryAfter: time.Second, Message: message}
}

// crowded returns the error for a job that its WaitingLimit refuses.
func (s *Submission) crowded() *freeslot.Error {
	share := 0
	for _, l := range s.Limits {
		if strings.HasPrefix(l.name, "w:") {
			share = l.most
		}
	}
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
		Message: fmt.Sprintf("as many jobs of tenant %s wait as may: %d in this cell, its share of max_waiting", s.Tenant,
			share),
	}
}
