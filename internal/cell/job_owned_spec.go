package cell

import (
	"context"
	"fmt"

	"github.com/freeslot/freeslot"
)

// OwnedSpec is Spec for a job that the node owns in this epoch. Errors: *freeslot.Error (not_found
// if the node does not own it or there is no such job), or from Redis.
func (c *Cell) OwnedSpec(ctx context.Context, node string, epoch Epoch, jobID string) (*freeslot.Job, string, error) {
	if err := validateAgent(node, epoch); err != nil {
		return nil, "", err
	}
	if err := ValidateJobID("job_id", jobID); err != nil {
		return nil, "", err
	}
	keys := []string{c.layout.Slots(node), c.layout.Job(jobID)}
	reply, err := c.runner.Call(ctx, c.scripts["owned_spec"], keys, []string{jobID, epoch}).ToArray()
	if err != nil {
		return nil, "", fmt.Errorf("read job %s: %w", jobID, err)
	}
	if len(reply) == 0 {
		return nil, "", &freeslot.Error{Code: freeslot.CodeNotFound, Field: "job_id", Message: "the node has no job " + jobID}
	}
	return readSpec(jobID, reply)
}
