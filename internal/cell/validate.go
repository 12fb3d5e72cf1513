package cell

import (
	"strings"

	"github.com/freeslot/freeslot"
)

// Everything that becomes part of a key, of an event or of a value with separators is checked
// before Redis is asked. The errors are *freeslot.Errors with code invalid_argument.

func validateAgent(node string, epoch Epoch) error {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return err
	}
	return freeslot.ValidateName("epoch", epoch)
}

func validateReplica(replica string) error { return freeslot.ValidateName("replica", replica) }

// validate does not check the job's contents: the caller did that when the job was submitted.
// candidates is the least number of candidates that the call needs.
func (s *Submission) validate(candidates int) error {
	if len(s.Candidates) < candidates || len(s.Candidates) > MaxCandidates {
		return freeslot.Invalid("candidates", "has %d entries, expected %d to %d", len(s.Candidates), candidates, MaxCandidates)
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

// isStreamID accepts only the long form, which Redis itself uses.
func isStreamID(id string) bool {
	ms, seq, ok := strings.Cut(id, "-")
	return ok && isDigits(ms) && isDigits(seq)
}

func isDigits(s string) bool {
	const longest = 20 // digits of a 64-bit number
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && len(s) <= longest
}
