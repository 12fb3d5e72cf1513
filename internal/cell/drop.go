package cell

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// Drop forgets a job that has ended, before its retention is over, and returns what was known of
// it, but for its result. An empty tenant stands for any. Errors: *freeslot.Error (invalid_argument, not_found,
// conflict for a job that has not ended, unavailable for one that has moved just now), else what Redis said.
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

// Drop is [Cell.Drop] in the cell where the job is, which is another than the one of its id when it has moved.
func (s *Set) Drop(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	return s.act(ctx, jobID, func(c *Cell, id string) (freeslot.JobStatus, error) {
		status, err := c.Drop(ctx, tenant, id)
		if OnTheMove(status.State) {
			return status, nil
		}
		return status, err
	})
}
