package cell

import (
	"context"
	"fmt"
	"time"
)

// onceStays is how long the marker of a job stays that nobody is going to enqueue again: a
// call that is late may be on its way.
const onceStays = time.Minute

// ForgetOnce drops the marker of a job that was enqueued under this Submission.Once, in a
// minute: nobody will enqueue it again. Errors: what Redis said.
func (s *Set) ForgetOnce(ctx context.Context, tenant, jobID, once string) error {
	c, err := s.ofJob(jobID)
	if err != nil {
		return err
	}
	cmd := c.client.B().Pexpire().Key(onceKey(c.layout, tenant, once)).Milliseconds(onceStays.Milliseconds()).Build()
	if err := c.runner.Do(ctx, "cron_forget", cmd).Error(); err != nil {
		return fmt.Errorf("forget the marker of job %s: %w", jobID, err)
	}
	return nil
}

// keyName is the key that names the job of a submission's idempotency key or Once; "" is none.
func (s *encodedSubmission) keyName(l Layout) string {
	switch {
	case s.Once != "":
		return onceKey(l, s.Tenant, s.Once)
	case s.Job.IdempotencyKey != "":
		return l.Idempotency(s.Tenant, s.Job.IdempotencyKey)
	default:
		return ""
	}
}

// onceKey is that of an idempotency key which no client can have.
func onceKey(l Layout, tenant, once string) string { return l.Idempotency(tenant, "\x00"+once) }
