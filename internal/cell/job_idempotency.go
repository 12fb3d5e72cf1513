package cell

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// onceStays is how long a job's marker stays after the last call that enqueues it: a late call may
// be on its way.
const onceStays = time.Minute

// Idempotency returns the string that names the job of a tenant's idempotency key. Only a hash of
// the key is part of the name, because the key can be any text.
func (l Layout) Idempotency(tenant, key string) string {
	return l.key("idem", tenant+":"+shortHash(key))
}

// keyName returns the key that names the job of a submission's idempotency key or Once; "" if it
// has neither.
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

// onceKey returns a name that no client's idempotency key can have.
func onceKey(l Layout, tenant, once string) string { return l.Idempotency(tenant, "\x00"+once) }

// specDigest tells jobs of one idempotency key apart. It ignores the trace, which belongs to the
// submission.
func specDigest(job *freeslot.Job) string {
	untraced := *job
	untraced.TraceParent = ""
	return shortHash(mustJSON(&untraced))
}

// ForgetOnce drops, after a minute, the marker of a job that was enqueued with this
// Submission.Once. The caller must not enqueue the job again. Errors: from Redis.
func (s *Set) ForgetOnce(ctx context.Context, tenant, jobID, once string) error {
	c, err := s.ofJob(jobID)
	if err != nil {
		return err
	}
	cmd := c.client.B().Pexpire().Key(onceKey(c.layout, tenant, once)).Milliseconds(onceStays.Milliseconds()).Build()
	err = c.runner.Do(ctx, "cron_forget", cmd).Error()
	wrap(&err, "forget the marker of job %s", jobID)
	return err
}

// key returns the value of an idempotency key, and how long the key is still kept; 0 if there is no
// key.
func (c *Cell) key(ctx context.Context, tenant, key string) (value string, left time.Duration, err error) {
	name := c.layout.Idempotency(tenant, key)
	ms, err := c.runner.Do(ctx, "move_key", c.client.B().Pttl().Key(name).Build()).AsInt64()
	if err != nil || ms <= 0 {
		return "", 0, err
	}
	value, err = c.runner.Do(ctx, "move_key", c.client.B().Get().Key(name).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", 0, nil
	}
	return value, time.Duration(ms) * time.Millisecond, err
}

// setKey makes an idempotency key unless it exists.
func (c *Cell) setKey(ctx context.Context, tenant, key, value string, keep time.Duration) error {
	set := c.client.B().Set().Key(c.layout.Idempotency(tenant, key)).Value(value).Nx().Px(keep).Build()
	return rueidisNil(c.runner.Do(ctx, "move_key", set).Error())
}
