package freeslot

import "encoding/json"

// MaxProgressBytes is the largest value that a handler can tell as its progress, as JSON.
const MaxProgressBytes = 4 << 10

// Progress is what a handler told of a job that it runs. Of two the later one is that of
// the higher Attempt, and of one attempt that with the higher Seq.
type Progress struct {
	// Attempt is which try of the job told it, from 1.
	Attempt int `json:"attempt"`
	// Seq counts what the attempt told, from 1. Numbers are missing where something later
	// took the place of what had not been sent yet.
	Seq int64 `json:"seq"`
	// AtMS is when Redis took it in, in milliseconds since the Unix epoch by Redis' clock.
	AtMS int64 `json:"at_ms"`
	// Value is any JSON value of at most MaxProgressBytes, as the handler gave it.
	Value json.RawMessage `json:"value"`
}

// After reports whether p was told later than q; anything is later than the zero value.
func (p *Progress) After(q *Progress) bool {
	return p.Attempt > q.Attempt || p.Attempt == q.Attempt && p.Seq > q.Seq
}

// OnLeaseLoss is what becomes of a job that runs when its node has not reached Redis for
// so long that the schedulers may have given it up.
type OnLeaseLoss string

// The values of Job.OnLeaseLoss. The empty one means LeaseLossContinue.
const (
	// LeaseLossContinue: the handler goes on. Where the node turns out to own the job
	// still, its result counts; else another node has begun the job anew meanwhile.
	LeaseLossContinue OnLeaseLoss = "continue"
	// LeaseLossCancel: the handler is cancelled, so that it does not run beside the next
	// attempt. Where the node turns out to own the job still, the attempt has failed with
	// JobErrorLeaseLost, and the next one follows.
	LeaseLossCancel OnLeaseLoss = "cancel"
)

func (j *Job) validateSupervision(path string) error {
	if j.ProgressTimeoutMS < 0 || j.ProgressTimeoutMS > MaxTimeoutMS {
		return Invalid(path+".progress_timeout_ms", "is %d, expected 1 to %d (0 or absent means no limit)", j.ProgressTimeoutMS, MaxTimeoutMS)
	}
	switch j.OnLeaseLoss {
	case "", LeaseLossContinue, LeaseLossCancel:
		return nil
	default:
		return Invalid(path+".on_lease_loss", "is %.40q, expected continue or cancel", string(j.OnLeaseLoss))
	}
}
