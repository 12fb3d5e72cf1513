package cell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Seen is what a caller has seen of a job that it wants to change. The zero value fits every job.
type Seen struct {
	// Attempt is 0 for any.
	Attempt int
	// State is empty for any. StateMoving means the same as StateWaiting.
	State freeslot.State
}

// Cancel ends a waiting job, or asks the node that runs the job to stop it. It returns what is
// known afterwards. A terminal job is only read. An empty tenant stands for any. Errors:
// *freeslot.Error (invalid_argument, not_found), or from Redis.
func (c *Cell) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return c.cancelIf(ctx, tenant, jobID, Seen{})
}

// cancelIf is Cancel, but leaves a job alone that is in another attempt or state than seen. The
// caller compares the status.
func (c *Cell) cancelIf(ctx context.Context, tenant, jobID string, seen Seen) (freeslot.JobStatus, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return freeslot.JobStatus{}, err
	}
	attempt := ""
	if seen.Attempt > 0 {
		attempt = strconv.Itoa(seen.Attempt)
	}
	l := c.layout
	keys := []string{l.Job(jobID), l.Due(), l.Finished(), l.Waiting(), l.WaitingVersion()}
	args := append([]string{jobID, tenant, attempt, string(seen.State)}, statusFields...)
	return c.told(ctx, func(on *script.Conn) (freeslot.JobStatus, error) {
		return c.statusReply(jobID, on.Call(ctx, c.scripts["cancel"], keys, args))
	})
}

// compare returns a conflict if the job is not as it was seen. A job that was cancelled meanwhile
// is: a repeated call must not fail because the first one succeeded.
func (seen Seen) compare(s *freeslot.JobStatus) error {
	field, want := "", ""
	switch {
	case seen.Attempt > 0 && seen.Attempt != s.Attempt:
		field, want = "attempt", fmt.Sprint("attempt ", seen.Attempt)
	case s.State == freeslot.StateCancelling || s.State == freeslot.StateCancelled:
		return nil
	case seen.State != "" && seen.State != s.State:
		field, want = "state", string(seen.State)
	default:
		return nil
	}
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Field: field,
		Message: fmt.Sprintf("job %s is %s in attempt %d by now, expected %s", s.ID, s.State, s.Attempt, want),
	}
}

// told returns what read reports of a job. It waits until an end cannot be lost any more; otherwise
// the client could later see another end.
func (c *Cell) told(
	ctx context.Context, read func(on *script.Conn) (freeslot.JobStatus, error),
) (status freeslot.JobStatus, err error) {
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

// ReplyTo returns the replica whose reply stream gets the job's result; "" if there is none, or no
// such job. Errors: *freeslot.Error (invalid_argument), or from Redis.
func (c *Cell) ReplyTo(ctx context.Context, jobID string) (string, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return "", err
	}
	get := c.client.B().Hget().Key(c.layout.Job(jobID)).Field("reply_to").Build()
	replica, err := c.runner.Do(ctx, "reply_to", get).ToString()
	if rueidisNil(err) != nil {
		return "", fmt.Errorf("read who waits for job %s: %w", jobID, err)
	}
	return replica, nil
}

// attachTries bounds how often an attach starts over because another attach came first. That many
// attaches at once are safe: each can be overtaken once by each of the others.
const attachTries = 16

var errAttached = errors.New("another attach came between")

// Attach makes replica the one whose reply stream gets the job's result, and returns what is known
// now. Errors: as Cancel.
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

// Job reads a job's record. Errors: as Cancel.
func (c *Cell) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return freeslot.JobStatus{}, err
	}
	status, err := c.told(ctx, func(on *script.Conn) (freeslot.JobStatus, error) {
		cmd := c.client.B().Hmget().Key(c.layout.Job(jobID)).Field(statusFields...).Build()
		return c.statusReply(jobID, on.Do(ctx, "read", cmd))
	})
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	if tenant != "" && status.Tenant != tenant {
		return freeslot.JobStatus{}, notFound(jobID)
	}
	switch status.State {
	case freeslot.StateWaiting:
		err = c.place(ctx, &status, jobID)
	case freeslot.StateScheduled, freeslot.StateRetryWait:
		status.RunAtMS, err = c.runAt(ctx, jobID, status.DeadlineMS)
	default:
	}
	return status, err
}

// runAt returns the time at which a scheduled job, or one in retry_wait, begins to wait for a slot.
// It returns 0 if the job waits already: what is due next is then its deadline.
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

// place fills in the job's position in the queue of its class, or what holds it back; neither if it
// has left meanwhile. jobID is the job's id in this cell.
func (c *Cell) place(ctx context.Context, s *freeslot.JobStatus, jobID string) error {
	zrank := c.client.B().Zrank().Key(c.layout.Queue(s.Class)).Member(jobID).Build()
	rank, err := c.runner.Do(ctx, "read", zrank).AsInt64()
	switch {
	case rueidis.IsRedisNil(err):
		s.HeldBy, err = c.limitOn(ctx, jobID, s.Class)
	case err == nil:
		s.Position = int(rank) + 1
	}
	if err != nil {
		return fmt.Errorf("place of job %s: %w", s.ID, err)
	}
	return nil
}

// Spec reads the job's spec, for an agent whose stream did not bring it. Errors: as Cancel.
func (c *Cell) Spec(ctx context.Context, jobID string) (*freeslot.Job, string, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return nil, "", err
	}
	cmd := c.client.B().Hmget().Key(c.layout.Job(jobID)).Field("spec", "job").Build()
	reply, err := c.runner.Do(ctx, "read", cmd).ToArray()
	if err != nil {
		return nil, "", fmt.Errorf("read job %s: %w", jobID, err)
	}
	return readSpec(jobID, reply)
}

// readSpec reads the fields spec and job of a record.
func readSpec(jobID string, reply []rueidis.RedisMessage) (*freeslot.Job, string, error) {
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
	record, err := parseJobRecord(static)
	if err != nil {
		return nil, "", &unreadableError{job: jobID, err: err}
	}
	job, err := decodeSpec(spec)
	if err != nil {
		return nil, "", fmt.Errorf("job %s: %w", jobID, err)
	}
	return job, record.tenant, nil
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
		// An operator's edit may name a cell that does not exist, or another job.
		if n, ok := JobCell(known); ok && n < c.cfg.Cells && MovedID(known, c.cfg.Index) == jobID {
			status.ID = known
		}
	}
	return status, nil
}

// limitOn returns the kind of limit that holds the job back; "" if none does. class is the job's
// class.
func (c *Cell) limitOn(ctx context.Context, jobID, class string) (string, error) {
	text, err := c.runner.Do(ctx, "read", c.client.B().Hget().Key(c.layout.Job(jobID)).Field("gates").Build()).ToString()
	if err != nil {
		return "", rueidisNil(err)
	}
	for _, name := range strings.Fields(text) {
		by := limitKind(name)
		if by == "" {
			continue
		}
		score := c.client.B().Zscore().Key(c.layout.LimitedBy(name)).Member(class + " " + jobID).Build()
		err := c.runner.Do(ctx, "read", score).Error()
		if err == nil {
			return by, nil
		}
		if rueidisNil(err) != nil {
			return "", err
		}
	}
	return "", nil
}
