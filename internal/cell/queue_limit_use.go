package cell

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/rueidis"
)

// tenantBatch is how many tenants one round trip of Use asks for.
const tenantBatch = 100

// Use counts the jobs of a tenant by the sets of its limits. Redis has these sets only for tenants
// with a limit; for any other tenant, and for the limit that it does not have, the counts are 0.
type Use struct {
	// Running counts towards max_running. Held counts the jobs that wait because of it.
	Running, Held int
	// Waiting counts towards max_waiting: jobs that wait for a slot, after a failure or for a time.
	Waiting int
	// OldestHeldMS is when the oldest of the held jobs was submitted, in milliseconds since 1970, by
	// the clock of the replica that accepted it; 0 without one. Only the first hundred are compared.
	OldestHeldMS int64
}

// Use counts the jobs of tenants, in their order. Errors: from Redis.
func (c *Cell) Use(ctx context.Context, tenants []string) ([]Use, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	used := make([]Use, 0, len(tenants))
	l, b := c.layout, c.client.B
	for part := range slices.Chunk(tenants, tenantBatch) {
		var asked []rueidis.Completed
		for _, tenant := range part {
			running, waiting := RunningLimit(tenant, 0).name, WaitingLimit(tenant, 0).name
			asked = append(asked, b().Scard().Key(l.Counted(running)).Build(), b().Scard().Key(l.Counted(waiting)).Build(),
				b().Zcard().Key(l.LimitedBy(running)).Build(),
				b().Zrange().Key(l.LimitedBy(running)).Min("0").Max(fmt.Sprint(queueLook-1)).Build())
		}
		answers := c.client.DoMulti(ctx, asked...)
		for i, tenant := range part {
			u, err := decodeUse(answers[4*i : 4*i+4])
			if err != nil {
				return nil, fmt.Errorf("count jobs of tenant %s: %w", tenant, err)
			}
			used = append(used, u)
		}
	}
	return used, nil
}

func decodeUse(answers []rueidis.RedisResult) (u Use, err error) {
	for i, n := range []*int{&u.Running, &u.Waiting, &u.Held} {
		count, err := answers[i].AsInt64()
		if err != nil {
			return u, err
		}
		*n = int(count)
	}
	held, err := answers[3].AsStrSlice()
	for _, member := range held {
		if at := submittedMS(limitedJob(member)); at > 0 && (u.OldestHeldMS == 0 || at < u.OldestHeldMS) {
			u.OldestHeldMS = at
		}
	}
	return u, err
}

// Use adds up the counts of all cells, in the order of tenants. failed holds the cells that did not
// answer; nil if all did.
func (s *Set) Use(ctx context.Context, tenants []string) (used []Use, failed map[int]error) {
	parts := make([][]Use, len(s.cells))
	failed = byCell(s.each(func(c *Cell) (err error) {
		parts[c.cfg.Index], err = c.Use(ctx, tenants)
		return err
	}))
	used = make([]Use, len(tenants))
	for _, part := range parts {
		for i, u := range part {
			sum := &used[i]
			sum.Running, sum.Held, sum.Waiting = sum.Running+u.Running, sum.Held+u.Held, sum.Waiting+u.Waiting
			if u.OldestHeldMS > 0 && (sum.OldestHeldMS == 0 || u.OldestHeldMS < sum.OldestHeldMS) {
				sum.OldestHeldMS = u.OldestHeldMS
			}
		}
	}
	return used, failed
}
