package cell

import (
	"context"
)

// Requeued notes in a job's record that the job was submitted again as another. It does nothing if
// the record is gone. Errors: *freeslot.Error (invalid_argument), or from Redis.
func (c *Cell) Requeued(ctx context.Context, jobID, as string) error {
	if err := ValidateJobID("job_id", jobID); err != nil {
		return err
	}
	if err := ValidateJobID("requeued_as", as); err != nil {
		return err
	}
	err := c.runner.Call(ctx, c.scripts["requeued"], []string{c.layout.Job(jobID)}, []string{as}).Error()
	wrap(&err, "note that job %s was submitted again", jobID)
	return err
}
