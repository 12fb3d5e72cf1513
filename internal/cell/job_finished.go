package cell

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// finishedPage reads terminal jobs, newest first, after at.
func (c *Cell) finishedPage(ctx context.Context, at position, limit int, f JobFilter) ([]listed, error) {
	var found []listed
	for _, index := range f.indexes(c.layout) {
		part, err := c.endedIn(ctx, index, at, limit, f)
		if err != nil {
			return nil, fmt.Errorf("list ended jobs: %w", err)
		}
		found = append(found, part...)
	}
	slices.SortFunc(found, func(a, b listed) int { return cmp.Or(cmp.Compare(b.us, a.us), cmp.Compare(b.job, a.job)) })
	return found[:min(len(found), limit)], nil
}

// endedIn reads jobs of one index, newest first, after at.
func (c *Cell) endedIn(
	ctx context.Context, index string, at position, limit int, f JobFilter,
) (found []listed, err error) {
	last, top, bottom := at.microsecond(), "+inf", "-inf"
	if f.ToMS > 0 {
		top = "(" + strconv.FormatInt(f.ToMS*1000, 10)
	}
	if f.FromMS > 0 {
		bottom = strconv.FormatInt(f.FromMS*1000, 10)
	}
	cmd := c.client.B().Zrevrangebyscore().Key(index).Max(cmp.Or(at.place, top)).Min(bottom).Withscores().
		Limit(0, int64(limit+tieRoom)).Build()
	scores, err := c.runner.Do(ctx, "list", cmd).AsZScores()
	if err != nil {
		return nil, err
	}
	for _, z := range scores {
		if z.Score == last && z.Member >= at.job && at.job != "" {
			continue
		}
		if found = append(found, listed{us: z.Score, job: z.Member}); len(found) == limit {
			break
		}
	}
	return found, nil
}

// since returns the time from which on all ended jobs that fit have been listed, if the listing
// goes on at next.
func (l *listing) since(ctx context.Context, next *position, f JobFilter) int64 {
	if next != nil {
		if !next.finished {
			return 0
		}
		return int64(next.number() / 1000)
	}
	if f.State != "" && !f.State.Terminal() {
		return 0
	}
	var mu sync.Mutex
	since := f.FromMS
	l.ask(func(_ int, c *Cell) error {
		at, err := c.endedSince(ctx, f)
		mu.Lock()
		defer mu.Unlock()
		since = max(since, at)
		return err
	})
	return since
}

// endedSince returns the time from which on the cell has all ended jobs that may fit, in ms.
func (c *Cell) endedSince(ctx context.Context, f JobFilter) (since int64, err error) {
	defer wrap(&err, "time of the oldest ended jobs")
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	indexes, b, dead := f.indexes(c.layout), c.client.B(), c.layout.Ended(string(freeslot.StateDead))
	cmds := []rueidis.Completed{
		b.Time().Build().Pin(), b.Hget().Key(c.layout.EndedInfo()).Field("since").Build().Pin(),
		b.Zcard().Key(dead).Build().Pin(),
	}
	for _, index := range indexes {
		cmds = append(cmds, b.Zrange().Key(index).Min("0").Max("0").Withscores().Build().Pin())
	}
	reply := c.client.DoMulti(ctx, cmds...)
	clock, err := reply[0].AsIntSlice()
	if err != nil || len(clock) != 2 {
		return 0, fmt.Errorf("clock %v: %w", clock, err)
	}
	now, keep := clock[0]*1000+clock[1]/1000, c.cfg.Retention
	if f.State == freeslot.StateDead {
		keep = max(keep, c.cfg.DeadRetention)
	}
	since = now - keep.Milliseconds()
	if f.unsuccessful() {
		began, err := reply[1].AsInt64()
		if rueidisNil(err) != nil {
			return 0, err
		}
		since = max(since, cmp.Or(began, now))
	}
	kept, err := reply[2].AsInt64()
	if err != nil {
		return 0, err
	}
	for i, index := range indexes {
		oldest, err := reply[3+i].AsZScores()
		if err != nil {
			return 0, err
		}
		if len(oldest) > 0 && (c.Retains() || index == dead && kept >= int64(c.cfg.DeadLimit)) {
			since = max(since, int64(oldest[0].Score/1000))
		}
	}
	return since, nil
}
