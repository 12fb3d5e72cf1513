package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// statusFields are the fields of a job's record that make up its status, in the
// order that decodeStatus expects. They are few, because Redis takes its time for
// each: what is set together is one field, its parts parted by a space.
//
//	job:   tenant, slots, submitted at (ms), retention (ms), class, priority, attempts that it may have,
//	       deadline (ms, 0 for none), definition of the class (JSON)
//	run:   attempt, node, epoch, assigned at (ms); absent before the first
//	progress: attempt, number, when it came (ms), value (JSON); absent before the first
//	fails: failures, when the last attempt ended (ms), its node; absent before the first
//
//	known: the id that clients know the job by; absent where that is the record's
//
// Of a job that moves to another cell, or has moved, there are besides: move, the cell that it goes to and
// the hop of this record; hop, which move of its life brought it here; keep, its retention while that move is not settled.
//
// The other fields of a record are reply_to, where a replica waits, attaches, how often one attached, spec, and why, which
// is "expired" where a job is being stopped for its deadline.
var statusFields = []string{"state", "job", "run", "fails", "error", "finished_at_ms", "result", "progress", "known"}

// headFields are all of them but the result and the progress, which can be large.
var headFields = append(slices.Clone(statusFields[:len(statusFields)-3]), "known")

// Cancel ends a job that waits, or asks the node that runs it to stop it, and returns what
// is known then; a terminal job is only read. An empty tenant stands for any. Errors:
// *freeslot.Error (invalid_argument, not_found), else what Redis said.
func (c *Cell) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return freeslot.JobStatus{}, err
	}
	l := c.layout
	keys := []string{l.Job(jobID), l.Due(), l.Finished(), l.Waiting(), l.WaitingVersion()}
	args := append([]string{jobID, tenant}, statusFields...)
	return c.told(ctx, func(on *script.Conn) (freeslot.JobStatus, error) {
		return c.statusReply(jobID, on.Call(ctx, c.scripts["cancel"], keys, args))
	})
}

// told is what read says of a job. An end is told once it cannot be lost any more: it would
// be followed by another.
func (c *Cell) told(ctx context.Context, read func(on *script.Conn) (freeslot.JobStatus, error)) (status freeslot.JobStatus, err error) {
	err = c.runner.OneConnection(func(on *script.Conn) (err error) {
		if status, err = read(on); err == nil && status.State.Terminal() {
			err = on.Confirm(ctx)
		}
		return err
	})
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	return status, nil
}

// ReplyTo is the replica whose reply stream gets the job's result, "" where none does or there is no such job.
// Errors: *freeslot.Error (invalid_argument), else what Redis said.
func (c *Cell) ReplyTo(ctx context.Context, jobID string) (string, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return "", err
	}
	replica, err := c.runner.Do(ctx, "reply_to", c.client.B().Hget().Key(c.layout.Job(jobID)).Field("reply_to").Build()).ToString()
	if rueidisNil(err) != nil {
		return "", fmt.Errorf("read who waits for job %s: %w", jobID, err)
	}
	return replica, nil
}

// attachTries is how often an attach begins anew because another one came between: each of so many that come at once can
// be beaten once by each of the others.
const attachTries = 16

var errAttached = errors.New("another attach came between")

// Attach makes replica the one whose reply stream gets the job's result, and
// returns what is known now. Errors as Cancel.
func (c *Cell) Attach(ctx context.Context, tenant, jobID, replica string) (freeslot.JobStatus, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return freeslot.JobStatus{}, err
	}
	if err := validateReplica(replica); err != nil {
		return freeslot.JobStatus{}, err
	}
	key := c.layout.Job(jobID)
	for range attachTries {
		status, err := c.told(ctx, func(on *script.Conn) (freeslot.JobStatus, error) {
			seen, err := on.Do(ctx, "attaches", c.client.B().Hget().Key(key).Field("attaches").Build()).ToString()
			if rueidisNil(err) != nil {
				return freeslot.JobStatus{}, fmt.Errorf("job %s: %w", jobID, err)
			}
			args := append([]string{jobID, tenant, replica, seen}, statusFields...)
			result := on.Call(ctx, c.scripts["attach"], []string{key}, args)
			if reply, err := result.ToArray(); err == nil && len(reply) == 1 {
				return freeslot.JobStatus{}, errAttached
			}
			return c.statusReply(jobID, result)
		})
		if !errors.Is(err, errAttached) {
			return status, err
		}
	}
	return freeslot.JobStatus{}, &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "others attach to the job again and again", RetryAfter: time.Second,
	}
}

// Job reads a job's record. Errors as Cancel.
func (c *Cell) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return freeslot.JobStatus{}, err
	}
	var reply rueidis.RedisResult
	status, err := c.told(ctx, func(on *script.Conn) (freeslot.JobStatus, error) {
		cmd := c.client.B().Hmget().Key(c.layout.Job(jobID)).Field(statusFields...).Build()
		reply = on.Do(ctx, "read", cmd)
		return c.statusReply(jobID, reply)
	})
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	if tenant != "" && status.Tenant != tenant {
		return freeslot.JobStatus{}, notFound(jobID)
	}
	switch status.State {
	case freeslot.StateWaiting:
		err = c.place(ctx, &status, jobID, reply)
	case freeslot.StateScheduled:
		status.RunAtMS, err = c.runAt(ctx, jobID, status.DeadlineMS)
	default:
	}
	return status, err
}

// runAt is when a scheduled job begins to wait; 0 when it has meanwhile: what it is due for next is its deadline then.
func (c *Cell) runAt(ctx context.Context, jobID string, deadline int64) (int64, error) {
	at, err := c.runner.Do(ctx, "read", c.client.B().Zscore().Key(c.layout.Due()).Member(jobID).Build()).AsFloat64()
	if rueidisNil(err) != nil {
		return 0, fmt.Errorf("time of job %s: %w", jobID, err)
	}
	if int64(at) == deadline {
		return 0, nil
	}
	return int64(at), nil
}

// place fills in where a job stands in the queue of its class, or what holds it back; neither
// when it has left meanwhile. jobID is its id in this cell, record the answer with its status fields.
func (c *Cell) place(ctx context.Context, s *freeslot.JobStatus, jobID string, record rueidis.RedisResult) error {
	fields, err := record.AsStrSlice()
	if err != nil {
		return fmt.Errorf("job %s: %w", s.ID, err)
	}
	part := strings.SplitN(fields[1], " ", staticParts)
	rank, err := c.runner.Do(ctx, "read", c.client.B().Zrank().Key(c.layout.Line(part[4])).Member(jobID).Build()).AsInt64()
	switch {
	case rueidis.IsRedisNil(err):
		s.HeldBy, err = c.heldBy(ctx, jobID, part[4])
	case err == nil:
		s.Position = int(rank) + 1
	}
	if err != nil {
		return fmt.Errorf("place of job %s: %w", s.ID, err)
	}
	return nil
}

// Spec reads what the job is, for an agent that got no spec by its stream.
// Errors as Cancel.
func (c *Cell) Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return nil, "", err
	}
	cmd := c.client.B().Hmget().Key(c.layout.Job(jobID)).Field("spec", "job").Build()
	reply, err := c.runner.Do(ctx, "read", cmd).ToArray()
	if err != nil {
		return nil, "", fmt.Errorf("read job %s: %w", jobID, err)
	}
	if reply[0].IsNil() {
		return nil, "", notFound(jobID)
	}
	spec, err := reply[0].AsBytes()
	if err != nil {
		return nil, "", fmt.Errorf("read job %s: %w", jobID, err)
	}
	static, err := reply[1].ToString()
	if err != nil {
		return nil, "", fmt.Errorf("read job %s: %w", jobID, err)
	}
	tenant, _, _ := strings.Cut(static, " ")
	job := new(freeslot.Job)
	if err := json.Unmarshal(spec, job); err != nil {
		return nil, "", fmt.Errorf("spec of job %s: %w", jobID, err)
	}
	return job, tenant, nil
}

func notFound(jobID string) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeNotFound, Field: "job_id",
		Message: "there is no job " + jobID + ", or it ended longer ago than results are kept",
	}
}

func (c *Cell) statusReply(jobID string, result rueidis.RedisResult) (freeslot.JobStatus, error) {
	reply, err := result.ToArray()
	if err != nil {
		return freeslot.JobStatus{}, fmt.Errorf("job %s: %w", jobID, err)
	}
	if len(reply) == 0 || reply[0].IsNil() {
		return freeslot.JobStatus{}, notFound(jobID)
	}
	text := make([]string, len(reply)) // absent fields are empty
	for i := range reply {
		if text[i], err = reply[i].ToString(); err != nil && !rueidis.IsRedisNil(err) {
			return freeslot.JobStatus{}, fmt.Errorf("record of job %s: %w", jobID, err)
		}
	}
	status, err := decodeStatus(jobID, text)
	if err != nil {
		return freeslot.JobStatus{}, &unreadableError{job: jobID, err: err}
	}
	if known := text[len(text)-1]; known != "" {
		// An operator's edit may name a cell that there is not, or another job.
		if n, ok := JobCell(known); ok && n < c.cfg.Cells && MovedID(known, c.cfg.Index) == jobID {
			status.ID = known
		}
	}
	return status, nil
}

// unreadableError is a record that no release wrote: somebody edited it. A listing
// goes on without it.
type unreadableError struct {
	job string
	err error
}

func (e *unreadableError) Error() string { return fmt.Sprintf("record of job %s: %v", e.job, e.err) }

func (e *unreadableError) Unwrap() error { return e.err }

// decodeStatus reads the values of statusFields, or of headFields: then without
// the result and the progress.
func decodeStatus(jobID string, text []string) (freeslot.JobStatus, error) {
	if len(text) != len(statusFields) && len(text) != len(headFields) {
		return freeslot.JobStatus{}, fmt.Errorf("%d fields, expected %d", len(text), len(statusFields))
	}
	s := freeslot.JobStatus{ID: jobID, State: freeslot.State(text[0])}
	if err := decodeStatic(&s, text[1]); err != nil {
		return s, fmt.Errorf("field job: %w", err)
	}
	if err := decodeRun(&s, text[2]); err != nil {
		return s, fmt.Errorf("field run: %w", err)
	}
	if err := decodeFails(&s, text[3]); err != nil {
		return s, fmt.Errorf("field fails: %w", err)
	}
	if s.State == freeslot.StateWaiting || s.State == freeslot.StateMoving {
		s.Node = "" // the record keeps that of the attempt before
	}
	if text[5] != "" {
		var err error
		if s.FinishedAtMS, err = strconv.ParseInt(text[5], 10, 64); err != nil {
			return s, fmt.Errorf("field finished_at_ms: %w", err)
		}
	}
	if len(text) == len(headFields) {
		err := setOutcome(&s, "", text[4])
		s.Result = nil
		return s, err
	}
	if err := setOutcome(&s, text[6], text[4]); err != nil {
		return s, err
	}
	if text[7] == "" {
		return s, nil
	}
	var err error
	if s.Progress, err = decodeProgress(text[7]); err != nil {
		return s, fmt.Errorf("field progress: %w", err)
	}
	return s, nil
}

// staticParts is how many the field job has.
const staticParts = 9

// decodeStatic reads the field job. The definition comes last: it alone may be any text.
func decodeStatic(s *freeslot.JobStatus, text string) (err error) {
	part := strings.SplitN(text, " ", staticParts)
	if len(part) != staticParts {
		return fmt.Errorf("%q has %d parts, expected %d", text, len(part), staticParts)
	}
	s.Tenant, s.Class = part[0], part[4]
	var definition struct {
		Service string `json:"service"`
	}
	if err := json.Unmarshal([]byte(part[8]), &definition); err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	s.Service = definition.Service
	if s.Priority, err = strconv.Atoi(part[5]); err != nil {
		return fmt.Errorf("priority: %w", err)
	}
	if s.DeadlineMS, err = strconv.ParseInt(part[7], 10, 64); err != nil {
		return fmt.Errorf("deadline: %w", err)
	}
	if s.Slots, err = strconv.Atoi(part[1]); err != nil {
		return fmt.Errorf("slots: %w", err)
	}
	if s.SubmittedAtMS, err = strconv.ParseInt(part[2], 10, 64); err != nil {
		return fmt.Errorf("submitted at: %w", err)
	}
	return nil
}

// decodeFails reads the field fails.
func decodeFails(s *freeslot.JobStatus, text string) (err error) {
	if text == "" {
		return nil
	}
	count, _, _ := strings.Cut(text, " ")
	s.Failures, err = strconv.Atoi(count)
	return err
}

// decodeRun reads the field run.
func decodeRun(s *freeslot.JobStatus, text string) (err error) {
	if text == "" {
		return nil // it has waited from the start
	}
	part := strings.Split(text, " ")
	if len(part) != 4 {
		return fmt.Errorf("%q has %d parts, expected 4", text, len(part))
	}
	s.Node = part[1]
	if s.Attempt, err = strconv.Atoi(part[0]); err != nil {
		return fmt.Errorf("attempt: %w", err)
	}
	if s.AssignedAtMS, err = strconv.ParseInt(part[3], 10, 64); err != nil {
		return fmt.Errorf("assigned at: %w", err)
	}
	return nil
}

// setOutcome fills in what a terminal job came to. A job that succeeded without
// a result has the result null.
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
