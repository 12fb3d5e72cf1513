package cell

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/freeslot/freeslot"
)

// statusFields lists the fields of a job's record that make up its status, in the order that
// decodeStatus expects. There are few, because Redis takes time for each: parts that are set
// together are one field, separated by a space.
//
//	job:      a jobRecord
//	run:      attempt, node, epoch, assigned at (ms); absent before the first attempt
//	progress: attempt, number, time of arrival (ms), value (JSON); absent before the first report
//	fails:    failures, time at which the last attempt ended (ms), its node; absent before that
//	requeued_as: the id of the job as which this one was submitted again
//	origin:   an Origin; absent if a client submitted the job
//	attempts: past attempts, see lib/attempts.lua
//	node_by:  by when (ms) a node that fits must be there; absent if one fitted at the submission
//	known:    the id that clients know the job by; absent if it is the record's id
//
// A job that moves or has moved to another cell also has: move, the target cell and the hop of this
// record; hop, the number of the move that brought it here; keep, its retention until that move is
// settled.
//
// The other fields of a record are reply_to (the replica that waits), attaches (how often a replica
// attached), spec, gates (the job's limits), and why, which is "expired" if a job is being stopped
// because of its deadline.
var statusFields = []string{
	"state", "job", "run", "fails", "error", "finished_at_ms", "requeued_as", "origin", "node_by", "result", "progress",
	"attempts", "known",
}

// headFields leaves out the result, the progress and the attempts, which can be large.
var headFields = append(slices.Clone(statusFields[:len(statusFields)-4]), "known")

// jobRecord is the field job of a record: the parts that never change. Scripts read and write it
// through lib/record.lua.
type jobRecord struct {
	tenant                   string
	slots                    int
	submittedMS, retentionMS int64
	class                    string // id
	priority, attempts       int    // attempts: the most attempts that it may have
	deadlineMS               int64  // 0 for none
	definition               string // of the class, in JSON
}

// parseJobRecord reads the field job.
func parseJobRecord(text string) (r jobRecord, err error) {
	err = readParts(text, &r.tenant, &r.slots, &r.submittedMS, &r.retentionMS, &r.class, &r.priority, &r.attempts,
		&r.deadlineMS, &r.definition)
	return r, err
}

// String returns the text of the field job.
func (r jobRecord) String() string {
	return fmt.Sprintf("%s %d %d %d %s %d %d %d %s",
		r.tenant, r.slots, r.submittedMS, r.retentionMS, r.class, r.priority, r.attempts, r.deadlineMS, r.definition)
}

// unreadableError is returned for a record that no release wrote: somebody edited it. A listing
// leaves it out.
type unreadableError struct {
	job string
	err error
}

func (e *unreadableError) Error() string { return fmt.Sprintf("record of job %s: %v", e.job, e.err) }

func (e *unreadableError) Unwrap() error { return e.err }

// decodeStatus reads the values of statusFields or of headFields; the latter have no result and no
// progress.
func decodeStatus(jobID string, text []string) (freeslot.JobStatus, error) {
	if len(text) != len(statusFields) && len(text) != len(headFields) {
		return freeslot.JobStatus{}, fmt.Errorf("%d fields, expected %d", len(text), len(statusFields))
	}
	s := freeslot.JobStatus{ID: jobID, State: freeslot.State(text[0])}
	if err := decodeJob(&s, text[1]); err != nil {
		return s, fmt.Errorf("field job: %w", err)
	}
	var epoch, last string
	if run := text[2]; run != "" { // otherwise it has waited from the start
		if err := readParts(run, &s.Attempt, &s.Node, &epoch, &s.AssignedAtMS); err != nil {
			return s, fmt.Errorf("field run: %w", err)
		}
	}
	if fails := text[3]; fails != "" {
		if err := readParts(fails, &s.Failures, &last); err != nil {
			return s, fmt.Errorf("field fails: %w", err)
		}
	}
	if s.State == freeslot.StateWaiting || s.State == freeslot.StateMoving {
		s.Node = "" // the record keeps the node of the attempt before
	}
	if text[5] != "" {
		var err error
		if s.FinishedAtMS, err = strconv.ParseInt(text[5], 10, 64); err != nil {
			return s, fmt.Errorf("field finished_at_ms: %w", err)
		}
	}
	s.RequeuedAs = text[6]
	origin, err := parseOrigin(text[7])
	if err != nil {
		return s, fmt.Errorf("field origin: %w", err)
	}
	s.Schedule, s.RequeuedFrom = origin.Schedule, origin.RequeuedFrom
	if s.NodeByMS, err = decodeNodeBy(&s, text[8]); err != nil {
		return s, fmt.Errorf("field node_by: %w", err)
	}
	if len(text) == len(headFields) {
		err := setOutcome(&s, "", text[4])
		s.Result = nil
		return s, err
	}
	if err := setOutcome(&s, text[9], text[4]); err != nil {
		return s, err
	}
	return s, decodeCourse(&s, text[10], text[11])
}

// decodeNodeBy reads the field node_by, which counts until the first attempt begins.
func decodeNodeBy(s *freeslot.JobStatus, text string) (int64, error) {
	before := s.State == freeslot.StateWaiting || s.State == freeslot.StateScheduled || s.State == freeslot.StateMoving
	if text == "" || s.Attempt > 0 || !before {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// decodeCourse fills in the progress and the past attempts.
func decodeCourse(s *freeslot.JobStatus, progress, attempts string) (err error) {
	if progress != "" {
		if s.Progress, err = decodeProgress(progress); err != nil {
			return fmt.Errorf("field progress: %w", err)
		}
	}
	if s.Attempts, err = decodeAttempts(attempts); err != nil {
		return fmt.Errorf("field attempts: %w", err)
	}
	return nil
}

// decodeJob fills in the fields that the field job holds.
func decodeJob(s *freeslot.JobStatus, text string) error {
	r, err := parseJobRecord(text)
	if err != nil {
		return err
	}
	s.Tenant, s.Slots, s.SubmittedAtMS = r.tenant, r.slots, r.submittedMS
	s.Class, s.Priority, s.DeadlineMS = r.class, r.priority, r.deadlineMS
	var definition struct {
		Service string `json:"service"`
	}
	if err := json.Unmarshal([]byte(r.definition), &definition); err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	s.Service = definition.Service
	return nil
}

// setOutcome fills in the outcome of a terminal job. A job that succeeded without a result has the
// result null.
func setOutcome(s *freeslot.JobStatus, result, failure string) error {
	switch s.State {
	case freeslot.StateSucceeded:
		s.Result = json.RawMessage(result)
		if result == "" {
			s.Result = json.RawMessage("null")
		}
	case freeslot.StateFailed, freeslot.StateDead, freeslot.StateExpired, freeslot.StateRetryWait:
		if failure == "" && s.State != freeslot.StateFailed {
			return nil
		}
		s.Error = new(freeslot.JobError)
		if err := json.Unmarshal([]byte(failure), s.Error); err != nil {
			return fmt.Errorf("field error: %w", err)
		}
	default:
	}
	return nil
}

// decodeProgress reads the field progress.
func decodeProgress(text string) (*freeslot.Progress, error) {
	var p freeslot.Progress
	var value string
	if err := readParts(text, &p.Attempt, &p.Seq, &p.AtMS, &value); err != nil {
		return nil, err
	}
	if p.Value = json.RawMessage(value); !json.Valid(p.Value) { // a client could not read it
		return nil, fmt.Errorf("value is not JSON")
	}
	return &p, nil
}
