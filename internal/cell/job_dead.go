package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/freeslot/freeslot"
)

const (
	// MaxDeadLook is the most dead jobs that one call of DeadLetters looks at.
	MaxDeadLook = 5000
	// MaxDeadGroups is the most groups that it returns.
	MaxDeadGroups = 200
)

// DeadKey is a property by which dead jobs are grouped.
type DeadKey string

// The properties.
const (
	DeadByService DeadKey = "service"
	DeadByCode    DeadKey = "code"
	DeadByNode    DeadKey = "node"
	DeadByTenant  DeadKey = "tenant"
)

// DeadGroup counts dead jobs with the same properties. Those by which jobs are not grouped are
// empty. Code is empty for a job without an error, too.
type DeadGroup struct {
	Service, Code, Node, Tenant string
	Jobs                        int
	// LastMS is when the last of them died, in milliseconds of Redis' clock, and LastJob its id.
	LastMS  int64
	LastJob string
}

// DeadLetters says what died.
type DeadLetters struct {
	// Groups has the largest first, at most MaxDeadGroups.
	Groups []DeadGroup
	// LookedAt counts the dead jobs that were looked at, the newest of each cell, at most
	// MaxDeadLook.
	LookedAt int
	// Total counts the dead jobs of all tenants in that time.
	Total int
	// SinceMS is the time from which on the groups count every dead job.
	SinceMS int64
	// Unreachable is as in JobPage.
	Unreachable []int
}

// DeadLetters counts the dead jobs that fit f by these properties. Only State is ignored. Errors:
// from Redis if no cell answered.
func (s *Set) DeadLetters(ctx context.Context, f JobFilter, by []DeadKey) (DeadLetters, error) {
	return s.deadLetters(ctx, f, by, MaxDeadLook, true)
}

// NewestDead is DeadLetters without SinceMS, for fewer calls: it looks at no more than most jobs.
// Where none died, it makes one call to a cell.
func (s *Set) NewestDead(ctx context.Context, f JobFilter, by []DeadKey, most int) (DeadLetters, error) {
	return s.deadLetters(ctx, f, by, most, false)
}

func (s *Set) deadLetters(
	ctx context.Context, f JobFilter, by []DeadKey, most int, since bool,
) (DeadLetters, error) {
	f.State = freeslot.StateDead
	l := &listing{set: s, failed: make(map[int]error)}
	groups := make(map[DeadGroup]*DeadGroup)
	var found DeadLetters
	var mu sync.Mutex
	share := max(most/len(s.cells), 1)
	l.ask(func(_ int, c *Cell) error {
		part, err := c.deadLetters(ctx, f, share, since)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		found.LookedAt, found.Total = found.LookedAt+part.looked, found.Total+part.total
		found.SinceMS = max(found.SinceMS, part.since)
		for i := range part.jobs {
			count(groups, &part.jobs[i], by)
		}
		return nil
	})
	if len(l.failed) == len(s.cells) {
		return DeadLetters{}, errors.Join(slices.Collect(maps.Values(l.failed))...)
	}
	for _, g := range groups {
		found.Groups = append(found.Groups, *g)
	}
	slices.SortFunc(found.Groups, func(a, b DeadGroup) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(b.LastMS, a.LastMS), cmp.Compare(a.LastJob, b.LastJob))
	})
	found.Groups = found.Groups[:min(len(found.Groups), MaxDeadGroups)]
	found.Unreachable = slices.Sorted(maps.Keys(l.failed))
	return found, nil
}

// count adds a job to its group.
func count(groups map[DeadGroup]*DeadGroup, s *freeslot.JobStatus, by []DeadKey) {
	var key DeadGroup
	for _, k := range by {
		switch k {
		case DeadByService:
			key.Service = s.Service
		case DeadByNode:
			key.Node = s.Node
		case DeadByTenant:
			key.Tenant = s.Tenant
		case DeadByCode:
			if s.Error != nil {
				key.Code = s.Error.Code
			}
		}
	}
	g := groups[key]
	if g == nil {
		g = new(DeadGroup)
		*g = key
		groups[key] = g
	}
	if g.Jobs++; s.FinishedAtMS > g.LastMS || s.FinishedAtMS == g.LastMS && s.ID > g.LastJob {
		g.LastMS, g.LastJob = s.FinishedAtMS, s.ID
	}
}

// deadPart is what one cell has of the dead jobs.
type deadPart struct {
	jobs          []freeslot.JobStatus
	looked, total int
	since         int64
}

// deadLetters reads the newest dead jobs of the cell that fit, of at most limit. Without since, the
// time from which on they are all is left out.
func (c *Cell) deadLetters(ctx context.Context, f JobFilter, limit int, since bool) (part deadPart, err error) {
	low, high := "-inf", "+inf"
	if f.FromMS > 0 {
		low = strconv.FormatInt(f.FromMS*1000, 10)
	}
	if f.ToMS > 0 {
		high = "(" + strconv.FormatInt(f.ToMS*1000, 10)
	}
	dead := c.layout.Ended(string(freeslot.StateDead))
	total, err := c.runner.Do(ctx, "list", c.client.B().Zcount().Key(dead).Min(low).Max(high).Build()).AsInt64()
	if err != nil {
		return part, fmt.Errorf("count dead jobs: %w", err)
	}
	if total == 0 && !since {
		return part, nil
	}
	found, err := c.endedIn(ctx, dead, position{}, limit, f)
	if err != nil {
		return part, fmt.Errorf("list dead jobs: %w", err)
	}
	part.total, part.looked = int(total), len(found)
	for some := range slices.Chunk(found, MaxPage) {
		ids := make([]string, len(some))
		for i := range some {
			ids[i] = some[i].job
		}
		jobs, err := c.statuses(ctx, ids, f)
		if err != nil {
			return part, err
		}
		part.jobs = append(part.jobs, jobs...)
	}
	switch {
	case !since:
		return part, nil
	case len(found) == limit:
		part.since = int64(found[limit-1].us / 1000)
		return part, nil
	}
	part.since, err = c.endedSince(ctx, f)
	part.since = max(part.since, f.FromMS)
	return part, err
}
