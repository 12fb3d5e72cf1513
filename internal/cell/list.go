package cell

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// MaxPage is the most jobs that one call of Jobs returns.
const MaxPage = 500

// tieRoom is how many terminal jobs can share a microsecond and still be paged
// without loss: a batch gives each of its own a microsecond of its own.
const tieRoom = 64

// Jobs lists running jobs by node, then terminal ones, the newest first, one
// page at a time, without their results: a page of large ones would hold up
// everything else on the connection. Job brings the result. A job that ends while
// the listing goes on can be seen twice, never missed. limit is cut to MaxPage.
// Errors: *freeslot.Error for a cursor that Jobs did not make, else what Redis said.
func (c *Cell) Jobs(ctx context.Context, f JobFilter, cursor string, limit int) (JobPage, error) {
	limit = min(max(limit, 1), MaxPage)
	at, err := c.openCursor(ctx, cursor)
	if err != nil {
		return JobPage{}, err
	}
	if cursor == "" && f.State.Terminal() {
		at.finished = true
	}
	ids, next, err := c.idPage(ctx, at, limit, f.State == "" || f.State.Terminal())
	if err != nil {
		return JobPage{}, err
	}
	jobs, err := c.statuses(ctx, ids, f)
	if err != nil {
		return JobPage{}, err
	}
	sealed, err := c.sealCursor(ctx, next)
	return JobPage{Jobs: jobs, Cursor: sealed}, err
}

// idPage reads one page of job ids behind at. Where the owned jobs end on the way,
// the terminal ones follow if they are wanted.
func (c *Cell) idPage(ctx context.Context, at position, limit int, terminal bool) (ids []string, next *position, err error) {
	if !at.finished {
		ids, next, err = c.ownedPage(ctx, at, limit)
		if err != nil || next != nil || !terminal {
			return ids, next, err
		}
		at = position{finished: true}
	}
	more, next, err := c.finishedPage(ctx, at, limit-len(ids))
	return append(ids, more...), next, err
}

// ownedPage reads owned jobs, in the order of node and job, behind at.
func (c *Cell) ownedPage(ctx context.Context, at position, limit int) (ids []string, next *position, err error) {
	nodes, err := c.do(ctx, "list", c.client.B().Zrange().Key(c.layout.Heartbeats()).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	slices.Sort(nodes)
	from, _ := slices.BinarySearch(nodes, at.place)
	for _, n := range nodes[from:] {
		owned, err := c.do(ctx, "list", c.client.B().Hkeys().Key(c.layout.Slots(n)).Build()).AsStrSlice()
		if err != nil {
			return nil, nil, fmt.Errorf("list jobs of node %s: %w", n, err)
		}
		slices.Sort(owned)
		for _, id := range owned {
			if id == "sum" || n == at.place && id <= at.job {
				continue
			}
			ids = append(ids, id)
			if len(ids) == limit {
				return ids, &position{place: n, job: id}, nil
			}
		}
	}
	return ids, nil, nil
}

// finishedPage reads terminal jobs, the newest first, behind at.
func (c *Cell) finishedPage(ctx context.Context, at position, limit int) (ids []string, next *position, err error) {
	top, last := "+inf", math.Inf(1)
	if at.place != "" {
		us, err := strconv.ParseUint(at.place, 10, 64)
		if err != nil {
			return nil, nil, badCursor()
		}
		top, last = at.place, float64(us)
	}
	cmd := c.client.B().Zrevrangebyscore().Key(c.layout.Finished()).Max(top).Min("-inf").Withscores().Limit(0, int64(limit+tieRoom)).Build()
	found, err := c.do(ctx, "list", cmd).AsZScores()
	if err != nil {
		return nil, nil, fmt.Errorf("list finished jobs: %w", err)
	}
	for _, z := range found {
		if z.Score == last && z.Member >= at.job && at.job != "" {
			continue
		}
		ids = append(ids, z.Member)
		if len(ids) == limit {
			return ids, &position{finished: true, place: strconv.FormatFloat(z.Score, 'f', 0, 64), job: z.Member}, nil
		}
	}
	return ids, nil, nil
}

// statuses reads records, but for their results, in one pipeline and drops those that are gone, cannot be
// read or do not fit the filter.
func (c *Cell) statuses(ctx context.Context, ids []string, f JobFilter) ([]freeslot.JobStatus, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	cmds := make([]rueidis.Completed, 0, len(ids))
	for _, id := range ids {
		cmds = append(cmds, c.client.B().Hmget().Key(c.layout.Job(id)).Field(headFields...).Build())
	}
	jobs := make([]freeslot.JobStatus, 0, len(ids))
	for i, result := range c.client.DoMulti(ctx, cmds...) {
		s, err := statusReply(ids[i], result)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			continue
		}
		var unreadable *unreadableError
		if errors.As(err, &unreadable) {
			c.log.Warn("job.unreadable", zap.Error(err))
			continue
		}
		if err != nil {
			return nil, err
		}
		if (f.Tenant == "" || s.Tenant == f.Tenant) && (f.State == "" || s.State == f.State) {
			jobs = append(jobs, s)
		}
	}
	return jobs, nil
}

// JobsByID reads the records of several jobs, but for their results, in one
// pipeline, MaxPage at most; those that are gone or cannot be read are left out. Errors: *freeslot.Error
// (invalid_argument), else what Redis said.
func (c *Cell) JobsByID(ctx context.Context, ids []string) ([]freeslot.JobStatus, error) {
	for _, id := range ids {
		if err := ValidateJobID("job_id", id); err != nil {
			return nil, err
		}
	}
	return c.statuses(ctx, ids, JobFilter{})
}
