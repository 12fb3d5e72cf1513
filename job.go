package freeslot

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// DefaultMaxPayloadBytes is the largest payload that a replica accepts unless it is configured
// otherwise.
const DefaultMaxPayloadBytes = 256 << 10

// MaxSlots is the largest number of slots that one job can ask for.
const MaxSlots = 1 << 16

// MaxAffinityKeyLength is the longest affinity key, idempotency key and concurrency key, in bytes.
const MaxAffinityKeyLength = 128

// Bounds and defaults of how a job is queued and retried.
const (
	// MaxPriority is the highest priority of a job.
	MaxPriority = 9
	// DefaultMaxAttempts stands for a Job.MaxAttempts of 0, and MaxMaxAttempts is its bound.
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
	// Payload is any JSON value. The handler gets it unchanged. Nil is JSON null.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Requirement is what the node must offer besides the service. The zero value asks for nothing.
	Requirement Requirement `json:"requirement,omitzero"`
	// AffinityKey keeps jobs with the same key on the same node while it has room, so that a
	// session stays where its model is loaded. It has at most MaxAffinityKeyLength bytes of UTF-8
	// without control characters; empty is no affinity. It does not change which nodes fit.
	AffinityKey string `json:"affinity_key,omitempty"`
	// Slots is the share of a node's capacity that the job takes while it runs. 0 means 1.
	Slots int `json:"slots,omitempty"`
	// Priority orders the jobs of a queue: a higher one is served first. It is 0, the lowest, to
	// MaxPriority.
	Priority int `json:"priority,omitempty"`
	// MaxAttempts is the number of failures after which the job is dead. The loss of its node
	// counts as a failure, and so does an error that the handler calls retryable. Any other error
	// fails the job at once. 0 means DefaultMaxAttempts.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// TimeoutMS is the longest time from the job's submission to its end, in milliseconds of Redis'
	// clock; then it expires. 0 is no limit.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// RunAtMS is the earliest time at which the job begins, in milliseconds since the Unix epoch by
	// Redis' clock. Until then the job is scheduled, and TimeoutMS counts from this time. 0, or a
	// time in the past, means at once.
	RunAtMS int64 `json:"run_at_ms,omitempty"`
	// ProgressTimeoutMS is the longest time that the handler may run without reporting progress, in
	// milliseconds of its node's clock. Then the node stops it, and the attempt fails with
	// JobErrorStalled. The job is retried while MaxAttempts allows it. 0 is no limit.
	ProgressTimeoutMS int64 `json:"progress_timeout_ms,omitempty"`
	// OnLeaseLoss decides whether the handler goes on when its node cannot reach Redis for the
	// heartbeat limit. Empty means LeaseLossContinue.
	OnLeaseLoss OnLeaseLoss `json:"on_lease_loss,omitempty"`
	// IdempotencyKey makes a submission repeatable. The scheduler keeps the key for a day unless
	// the replicas are configured otherwise. Meanwhile a second job of the tenant with the same key
	// is not created: its submitter gets the first job's id and result. The key has the form of
	// AffinityKey; empty is none.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// ConcurrencyKey limits how many of the tenant's jobs with the same key run at a time: at most
	// ConcurrencyLimit. Further ones wait, ordered by priority and age. Jobs with one key should
	// ask for the same nodes: with several cells the limit holds in each cell that has jobs with
	// the key. It has the form of AffinityKey; empty is none.
	ConcurrencyKey string `json:"concurrency_key,omitempty"`
	// ConcurrencyLimit is 1 to MaxConcurrencyLimit. The latest submission sets it for all jobs with
	// the key. 0 means 1.
	ConcurrencyLimit int `json:"concurrency_limit,omitempty"`
	// TraceParent is the W3C trace context of the submitter; empty if it is not traced.
	TraceParent string `json:"traceparent,omitempty"`
	// Admission says what a chain decided about the job; nil if none did. The scheduler sets it. A
	// job that is submitted with one, because it was read from the scheduler, is decided anew.
	Admission *Admission `json:"admission,omitempty"`
}

// Admission is what a chain decided about a job.
type Admission struct {
	// Chain and Version name the chain. Version is 0 if the chain was not known.
	Chain   string `json:"chain"`
	Version int64  `json:"version"`
	// Outcome is allow, deny, unknown or variant, Variant the name of the variant.
	Outcome string `json:"outcome"`
	Variant string `json:"variant,omitempty"`
	// Rule is the rule that decided; empty for the default. Reason is in words for people.
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
	// Observed is true if the chain only observes: the outcome changed nothing.
	Observed bool `json:"observed,omitempty"`
	// Pool and PreferredPool are what the variant set, in place of AskedPool and AskedPreferredPool
	// of the submission.
	Pool               string `json:"pool,omitempty"`
	PreferredPool      string `json:"preferred_pool,omitempty"`
	AskedPool          string `json:"asked_pool,omitempty"`
	AskedPreferredPool string `json:"asked_preferred_pool,omitempty"`
}

// Asked returns the job as it was before a chain decided about it: without Admission, and with the
// pools that it asked for. It returns j itself if no chain did.
func (j *Job) Asked() *Job {
	a := j.Admission
	if a == nil {
		return j
	}
	out := *j
	out.Admission = nil
	if a.Pool != "" && out.Requirement.Pool == a.Pool {
		out.Requirement.Pool = a.AskedPool
	}
	if a.PreferredPool != "" && out.Requirement.PreferredPool == a.PreferredPool {
		out.Requirement.PreferredPool = a.AskedPreferredPool
	}
	return &out
}

// OnLeaseLoss decides what happens to a running job when its node has been cut off from Redis so
// long that the schedulers may have taken the node out.
type OnLeaseLoss string

// The values of Job.OnLeaseLoss. The empty one means LeaseLossContinue.
const (
	// LeaseLossContinue: the handler goes on. If the node still owns the job afterwards, its result
	// counts; otherwise the job has begun again on another node.
	LeaseLossContinue OnLeaseLoss = "continue"
	// LeaseLossCancel: the handler is cancelled, so that it does not run beside the next attempt.
	// If the node still owns the job afterwards, the attempt fails with JobErrorLeaseLost, and the
	// next one follows.
	LeaseLossCancel OnLeaseLoss = "cancel"
)

// ValidateKey checks an affinity, idempotency or concurrency key; the empty one is valid. The error
// is an [*Error] with code [CodeInvalidArgument].
func ValidateKey(field, key string) error {
	if utf8.ValidString(key) && len(key) <= MaxAffinityKeyLength && !strings.ContainsFunc(key, isControl) {
		return nil
	}
	return Invalid(
		field, "is not a key, expected at most %d bytes of UTF-8 without control characters", MaxAffinityKeyLength,
	)
}

// Validate checks everything except the payload's size, which is a limit of the replica. path is
// put before the field names in errors ("job", "jobs[3]"). The error is an [*Error] with code
// [CodeInvalidArgument].
func (j *Job) Validate(path string) error {
	if err := ValidateName(path+".service", j.Service); err != nil {
		return err
	}
	if j.Slots < 0 || j.Slots > MaxSlots {
		return Invalid(path+".slots", "is %d, expected 1 to %d (0 or absent means 1)", j.Slots, MaxSlots)
	}
	for _, key := range []struct{ field, text string }{
		{".affinity_key", j.AffinityKey}, {".idempotency_key", j.IdempotencyKey}, {".concurrency_key", j.ConcurrencyKey},
	} {
		if err := ValidateKey(path+key.field, key.text); err != nil {
			return err
		}
	}
	if err := ValidateJSON(path+".payload", j.Payload); err != nil {
		return err
	}
	if len(j.TraceParent) > 64 || strings.ContainsFunc(j.TraceParent, isControl) {
		return Invalid(path+".traceparent", "is not a W3C traceparent")
	}
	switch {
	case j.Priority < 0 || j.Priority > MaxPriority:
		return Invalid(path+".priority", "is %d, expected 0 to %d", j.Priority, MaxPriority)
	case j.MaxAttempts < 0 || j.MaxAttempts > MaxMaxAttempts:
		return Invalid(
			path+".max_attempts", "is %d, expected 1 to %d (0 or absent means %d)", j.MaxAttempts, MaxMaxAttempts,
			DefaultMaxAttempts,
		)
	case j.ConcurrencyLimit < 0 || j.ConcurrencyLimit > MaxConcurrencyLimit:
		return Invalid(
			path+".concurrency_limit", "is %d, expected 1 to %d (0 or absent means 1)", j.ConcurrencyLimit, MaxConcurrencyLimit,
		)
	case j.ConcurrencyLimit != 0 && j.ConcurrencyKey == "":
		return Invalid(
			path+".concurrency_limit", "is %d without a concurrency_key, expected both or neither", j.ConcurrencyLimit,
		)
	case j.RunAtMS < 0 || j.RunAtMS > maxTimeMS:
		return Invalid(path+".run_at_ms", "is %d, expected milliseconds since the Unix epoch", j.RunAtMS)
	case j.TimeoutMS < 0 || j.TimeoutMS > MaxTimeoutMS:
		return Invalid(path+".timeout_ms", "is %d, expected 1 to %d (0 or absent means no limit)", j.TimeoutMS, MaxTimeoutMS)
	case j.ProgressTimeoutMS < 0 || j.ProgressTimeoutMS > MaxTimeoutMS:
		return Invalid(
			path+".progress_timeout_ms", "is %d, expected 1 to %d (0 or absent means no limit)", j.ProgressTimeoutMS,
			MaxTimeoutMS,
		)
	case j.OnLeaseLoss != "" && j.OnLeaseLoss != LeaseLossContinue && j.OnLeaseLoss != LeaseLossCancel:
		return Invalid(path+".on_lease_loss", "is %.40q, expected continue or cancel", string(j.OnLeaseLoss))
	}
	if err := j.Requirement.validate(path + ".requirement"); err != nil || j.Admission == nil {
		return err
	}
	// Asked puts them into the requirement.
	if err := validateOptional(path+".admission.asked_pool", j.Admission.AskedPool); err != nil {
		return err
	}
	return validateOptional(path+".admission.asked_preferred_pool", j.Admission.AskedPreferredPool)
}

// AttemptLimit returns MaxAttempts with its default applied.
func (j *Job) AttemptLimit() int {
	if j.MaxAttempts == 0 {
		return DefaultMaxAttempts
	}
	return j.MaxAttempts
}

// KeyLimit returns ConcurrencyLimit with its default applied.
func (j *Job) KeyLimit() int { return max(j.ConcurrencyLimit, 1) }

// SlotCount returns Slots with its default applied.
func (j *Job) SlotCount() int { return max(j.Slots, 1) }
