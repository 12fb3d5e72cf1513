package cell

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
)

// CheckLimits corrects what limits count, and lets held-back jobs wait for slots again if their
// limit has room. It looks at up to most limits that hold jobs back, and at as many others. It
// returns the classes of the jobs that wait again. Errors: from Redis.
func (c *Cell) CheckLimits(ctx context.Context, most int) (classes []Class, err error) {
	defer wrap(&err, "check limits")
	l := c.layout
	keys := []string{l.Version(), l.Waiting(), l.WaitingVersion()}
	text, err := c.runner.Call(ctx, c.scripts["limits"], keys, []string{strconv.Itoa(max(most, 1))}).AsStrSlice()
	if err != nil {
		return nil, err
	}
	return readClasses(text)
}

// Limited reports whether any limit counts jobs or holds them back. Errors: from Redis.
func (c *Cell) Limited(ctx context.Context) (bool, error) {
	exists := c.client.B().Exists().Key(c.layout.Limits(), c.layout.FullLimits()).Build()
	n, err := c.runner.Do(ctx, "gates", exists).AsInt64()
	wrap(&err, "look for limits")
	return n > 0, err
}

// mostFullLimits bounds how many limits of a cell FullLimits looks at.
const mostFullLimits = 1000

// FullLimit is a limit that holds jobs back.
type FullLimit struct {
	// By is freeslot.HeldByTenant or freeslot.HeldByKey. Tenant is the tenant whose limit it is.
	By, Tenant string
	// Limit is how many jobs may run. Running counts those that run, and Jobs those held back.
	Limit, Running, Jobs int
	// First is the job that continues next.
	First string
}

// FullLimits returns the limits that hold jobs back. If more than a thousand do, it returns those
// that were looked at longest ago. Errors: from Redis.
func (c *Cell) FullLimits(ctx context.Context) ([]FullLimit, error) {
	l, b := c.layout, c.client.B
	first := b().Zrange().Key(l.FullLimits()).Min("0").Max(strconv.Itoa(mostFullLimits - 1)).Build()
	names, err := c.runner.Do(ctx, "held", first).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("list limits: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	var full []FullLimit
	for part := range slices.Chunk(names, queueBatch) {
		var asked []rueidis.Completed
		for _, name := range part {
			asked = append(asked, b().Hget().Key(l.Limits()).Field(name).Build(), b().Scard().Key(l.Counted(name)).Build(),
				b().Zcard().Key(l.LimitedBy(name)).Build(), b().Zrange().Key(l.LimitedBy(name)).Min("0").Max("0").Build())
		}
		answers := c.client.DoMulti(ctx, asked...)
		for i, name := range part {
			h, err := decodeFullLimit(name, answers[4*i:4*i+4])
			if err != nil {
				return nil, fmt.Errorf("read limit %s: %w", name, err)
			}
			if h.Jobs > 0 {
				full = append(full, h)
			}
		}
	}
	return full, nil
}

func decodeFullLimit(name string, answers []rueidis.RedisResult) (h FullLimit, err error) {
	h.By, h.Tenant = limitKind(name), limitTenant(name)
	limit, err := answers[0].ToString()
	if rueidisNil(err) != nil {
		return h, err
	}
	h.Limit, _ = strconv.Atoi(limit) // an operator may have edited it
	for i, n := range []*int{&h.Running, &h.Jobs} {
		count, err := answers[1+i].AsInt64()
		if err != nil {
			return h, err
		}
		*n = int(count)
	}
	first, err := answers[3].AsStrSlice()
	if len(first) > 0 {
		h.First = limitedJob(first[0])
	}
	return h, err
}

// FullLimits returns the limits that hold jobs back in all cells, the limit with the most jobs
// first. Each cell's limit is listed by itself. failed holds the cells that did not answer; nil if
// all did.
func (s *Set) FullLimits(ctx context.Context) (full []FullLimit, failed map[int]error) {
	parts := make([][]FullLimit, len(s.cells))
	failed = byCell(s.each(func(c *Cell) (err error) {
		parts[c.cfg.Index], err = c.FullLimits(ctx)
		return err
	}))
	full = slices.Concat(parts...)
	slices.SortStableFunc(full, func(a, b FullLimit) int { return b.Jobs - a.Jobs })
	return full, failed
}
