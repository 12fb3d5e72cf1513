package cell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// retainPage is the most records that one call of Retain counts, and the most that it drops. Such a
// call holds up Redis for a millisecond.
const retainPage = 100

// Retained says what Retain found and did.
type Retained struct {
	// Bytes is the size of the records of ended jobs, including those that have just expired.
	Bytes int64
	// Dropped is the number of records dropped because of the limit.
	Dropped int
	// More is true if the next call has work to do at once.
	More bool
}

// Retains reports whether the records of ended jobs are limited in bytes.
func (c *Cell) Retains() bool { return c.cfg.RetentionBytes > 0 }

// deadShare is the part of RetentionBytes that dead jobs may take.
const deadShare = 2

// Retain keeps the records of ended jobs within Config.RetentionBytes: the oldest are dropped
// first, dead jobs among themselves beyond their share. If that is 0 (no limit), it does nothing.
// One call does a page of the work. Several replicas may call it at the same time. Errors: from
// Redis.
func (c *Cell) Retain(ctx context.Context) (Retained, error) {
	if !c.Retains() {
		return Retained{}, nil
	}
	return c.retain(ctx, retainPage)
}

func (c *Cell) retain(ctx context.Context, page int) (Retained, error) {
	l, limit := c.layout, c.cfg.RetentionBytes
	dead, err := c.retainIn(ctx, l.Ended(string(freeslot.StateDead)), l.KeptDead(), max(limit/deadShare, 1), page)
	if err != nil {
		return Retained{}, err
	}
	rest, err := c.retainIn(ctx, l.Finished(), l.Kept(), max(limit-dead.Bytes, 1), page)
	return Retained{
		Bytes: dead.Bytes + rest.Bytes, Dropped: dead.Dropped + rest.Dropped, More: dead.More || rest.More,
	}, err
}

// retainIn limits the records of one index.
func (c *Cell) retainIn(ctx context.Context, index, kept string, limit int64, page int) (Retained, error) {
	args := []string{strconv.FormatInt(limit, 10), strconv.Itoa(page)}
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["retain"], []string{index, kept}, args))
	done := Retained{Bytes: r.Number(), Dropped: int(r.Number()), More: r.Text() == "1"}
	wrap(&r.Err, "retain records")
	return done, r.Err
}

// Drop forgets a job that has ended before its retention is over. It returns what was known of the
// job, without the result. An empty tenant stands for any. Errors: *freeslot.Error
// (invalid_argument; not_found; conflict if the job has not ended; unavailable if it moved just
// now), or from Redis.
func (c *Cell) Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return freeslot.JobStatus{}, err
	}
	keys := []string{c.layout.Job(jobID), c.layout.Finished()}
	args := append([]string{jobID, tenant}, headFields...)
	status, err := c.statusReply(jobID, c.runner.Call(ctx, c.scripts["drop"], keys, args))
	var unreadable *unreadableError
	var answer *rueidis.RedisError
	switch {
	case errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "UNSETTLED"):
		return freeslot.JobStatus{}, &freeslot.Error{
			Code: freeslot.CodeUnavailable, Field: "job_id", RetryAfter: moveRetention,
			Message: "job " + jobID + " came from another part of Redis a moment ago, and has to be kept for a while",
		}
	case errors.As(err, &unreadable):
		return freeslot.JobStatus{ID: jobID}, err
	case err != nil:
		return freeslot.JobStatus{}, err
	case !status.State.Terminal():
		return status, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "job_id",
			Message: fmt.Sprintf("job %s is %s, expected one that has ended: cancel it first", jobID, status.State),
		}
	}
	return status, nil
}
