package cell

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// pageOf is page, but reads the queue first where a class is listed.
func (l *listing) pageOf(ctx context.Context, at position, limit int, f JobFilter) (found []listed, next *position) {
	if !at.line {
		return l.page(ctx, at, limit, f)
	}
	found = l.merge(limit, func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.us, b.us), cmp.Compare(a.job, b.job))
	}, func(c *Cell) ([]listed, error) { return c.linePage(ctx, f.Class, at, limit) })
	switch {
	case len(found) == limit:
		last := found[limit-1]
		return found, &position{line: true, place: strconv.FormatFloat(last.us, 'f', 0, 64), job: last.job}
	default:
		others, next := l.page(ctx, position{}, limit-len(found), f)
		return append(found, others...), next
	}
}

// linePage reads jobs of a class that wait, in the order in which they are served, behind at.
func (c *Cell) linePage(ctx context.Context, class string, at position, limit int) (found []listed, err error) {
	line, from := c.layout.Line(class), int64(0)
	score := -1.0
	if at.place != "" {
		score = at.score()
		// The job that at is behind may be gone by now.
		count := c.client.B().Zcount().Key(line).Min("-inf").Max("(" + at.place).Build()
		if from, err = c.runner.Do(ctx, "list", count).AsInt64(); err != nil {
			return nil, fmt.Errorf("list queue of class %s: %w", class, err)
		}
	}
	for {
		jobs, err := c.lineFrom(ctx, line, from, limit)
		if err != nil {
			return nil, fmt.Errorf("list queue of class %s: %w", class, err)
		}
		for _, z := range jobs {
			if z.Score == score && z.Member <= at.job {
				continue
			}
			found = append(found, listed{node: placeLine + class, us: z.Score, job: z.Member})
			if len(found) == limit {
				return found, nil
			}
		}
		if len(jobs) < limit {
			return found, nil
		}
		from += int64(limit)
	}
}

func (c *Cell) lineFrom(ctx context.Context, line string, from int64, limit int) ([]rueidis.ZScore, error) {
	cmd := c.client.B().Zrange().Key(line).Min(strconv.FormatInt(from, 10)).Max(strconv.FormatInt(from+int64(limit)-1, 10)).Withscores().Build()
	return c.runner.Do(ctx, "list", cmd).AsZScores()
}
