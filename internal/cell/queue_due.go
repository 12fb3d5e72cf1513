package cell

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

const (
	// dueLook is how many of the jobs with a time before the end of the look DueBy reads. If there
	// are more, it reads dueParts parts that are spread evenly over them.
	dueLook  = 512
	dueParts = 16
)

// DueQueue counts the jobs of a class that will begin to wait.
type DueQueue struct {
	Class
	Jobs, Slots int
}

// DueBy counts the jobs for later, and the jobs in a pause before their next attempt, whose time
// comes until at, by class. The index of times also has the deadlines of other jobs. Up to 512
// places in it the counts are exact, beyond that they are estimates. Errors: from Redis.
func (c *Cell) DueBy(ctx context.Context, at time.Time) ([]DueQueue, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	key, until := c.layout.Due(), strconv.FormatInt(at.UnixMilli(), 10)
	count := c.client.B().Zcount().Key(key).Min("-inf").Max(until).Build()
	n, err := c.runner.Do(ctx, "due_by", count).AsInt64()
	if err != nil || n == 0 {
		return nil, wrapDue(err)
	}
	ids, err := c.dueSample(ctx, key, int(n))
	if err != nil || len(ids) == 0 {
		return nil, wrapDue(err)
	}
	found, err := c.dueQueues(ctx, ids)
	if err != nil {
		return nil, wrapDue(err)
	}
	for i := range found {
		q := &found[i]
		q.Jobs, q.Slots = q.Jobs*int(n)/len(ids), q.Slots*int(n)/len(ids)
	}
	return found, nil
}

func wrapDue(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("count jobs that are due soon: %w", err)
}

// dueSample returns the first n jobs of the index of times, or dueLook of them.
func (c *Cell) dueSample(ctx context.Context, key string, n int) (ids []string, err error) {
	parts, size := 1, n
	if n > dueLook {
		parts, size = dueParts, dueLook/dueParts
	}
	asked := make([]rueidis.Completed, parts)
	for i := range asked {
		from := i * n / parts
		asked[i] = c.client.B().Zrange().Key(key).Min(strconv.Itoa(from)).Max(strconv.Itoa(from + size - 1)).Build().Pin()
	}
	for _, answer := range c.client.DoMulti(ctx, asked...) {
		part, err := answer.AsStrSlice()
		if err != nil {
			return nil, err
		}
		ids = append(ids, part...)
	}
	return ids, nil
}

// dueQueues counts the jobs that are set aside for later or in a pause, by class.
func (c *Cell) dueQueues(ctx context.Context, ids []string) (found []DueQueue, err error) {
	asked := make([]rueidis.Completed, len(ids))
	for i, id := range ids {
		asked[i] = c.client.B().Hmget().Key(c.layout.Job(id)).Field("state", "job").Build().Pin()
	}
	byClass := make(map[string]int)
	for _, answer := range c.client.DoMulti(ctx, asked...) {
		fields, err := answer.AsStrSlice()
		if _, refused := rueidis.IsRedisErr(err); refused {
			continue // a key of another type is no job
		}
		if err != nil {
			return nil, err
		}
		if state := freeslot.State(fields[0]); state != freeslot.StateScheduled && state != freeslot.StateRetryWait {
			continue
		}
		job, err := parseJobRecord(fields[1])
		if err != nil {
			continue // somebody edited it; listings tell
		}
		i, known := byClass[job.class]
		if !known {
			i = len(found)
			byClass[job.class] = i
			found = append(found, DueQueue{Class: Class{ID: job.class, Definition: job.definition}})
		}
		found[i].Jobs++
		found[i].Slots += job.slots
	}
	return found, nil
}
