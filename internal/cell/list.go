package cell

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
// page at a time. A job that ends while the listing goes on can be seen twice,
// never missed. limit is cut to MaxPage. Errors: *freeslot.Error for a cursor
// that Jobs did not make, else what Redis said.
func (c *Cell) Jobs(ctx context.Context, f JobFilter, cursor string, limit int) (JobPage, error) {
	limit = min(max(limit, 1), MaxPage)
	kind, rest, _ := strings.Cut(cursor, "~")
	node, job, _ := strings.Cut(rest, "~")
	var ids []string
	var next string
	var err error
	switch {
	case cursor == "" && f.State.Terminal():
		ids, next, err = c.finishedPage(ctx, "", "", limit)
	case cursor == "", kind == "n":
		ids, next, err = c.ownedPage(ctx, node, job, limit)
		if next == "" && err == nil && (f.State == "" || f.State.Terminal()) {
			next = "f~~"
		}
	case kind == "f":
		ids, next, err = c.finishedPage(ctx, node, job, limit)
	default:
		err = badCursor()
	}
	if err != nil {
		return JobPage{}, err
	}
	jobs, err := c.statuses(ctx, ids, f)
	return JobPage{Jobs: jobs, Cursor: next}, err
}

func badCursor() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeInvalidArgument, Field: "cursor",
		Message: "cursor is not one that a listing returned",
	}
}

// ownedPage reads owned jobs, in the order of node and job, behind (node, job).
func (c *Cell) ownedPage(ctx context.Context, node, job string, limit int) (ids []string, next string, err error) {
	nodes, err := c.do(ctx, "list", c.client.B().Zrange().Key(c.layout.Heartbeats()).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		return nil, "", fmt.Errorf("list nodes: %w", err)
	}
	slices.Sort(nodes)
	from, _ := slices.BinarySearch(nodes, node)
	for _, n := range nodes[from:] {
		owned, err := c.do(ctx, "list", c.client.B().Hkeys().Key(c.layout.Slots(n)).Build()).AsStrSlice()
		if err != nil {
			return nil, "", fmt.Errorf("list jobs of node %s: %w", n, err)
		}
		slices.Sort(owned)
		for _, id := range owned {
			if id == "sum" || n == node && id <= job {
				continue
			}
			ids = append(ids, id)
			if len(ids) == limit {
				return ids, "n~" + n + "~" + id, nil
			}
		}
	}
	return ids, "", nil
}

// finishedPage reads terminal jobs, the newest first, behind (score, job).
func (c *Cell) finishedPage(ctx context.Context, score, job string, limit int) (ids []string, next string, err error) {
	top := "+inf"
	last := math.Inf(1)
	if score != "" {
		us, err := strconv.ParseUint(score, 10, 64)
		if err != nil {
			return nil, "", badCursor()
		}
		last, top = float64(us), score
	}
	cmd := c.client.B().Zrevrangebyscore().Key(c.layout.Finished()).Max(top).Min("-inf").Withscores().Limit(0, int64(limit+tieRoom)).Build()
	found, err := c.do(ctx, "list", cmd).AsZScores()
	if err != nil {
		return nil, "", fmt.Errorf("list finished jobs: %w", err)
	}
	for _, z := range found {
		if z.Score == last && z.Member >= job && job != "" {
			continue
		}
		ids = append(ids, z.Member)
		if len(ids) == limit {
			return ids, "f~" + strconv.FormatFloat(z.Score, 'f', 0, 64) + "~" + z.Member, nil
		}
	}
	return ids, "", nil
}

// statuses reads records in one pipeline and drops those that are gone, cannot be
// read or do not fit the filter.
func (c *Cell) statuses(ctx context.Context, ids []string, f JobFilter) ([]freeslot.JobStatus, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	cmds := make([]rueidis.Completed, 0, len(ids))
	for _, id := range ids {
		cmds = append(cmds, c.client.B().Hmget().Key(c.layout.Job(id)).Field(statusFields...).Build())
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

// JobsByID reads the records of several jobs in one pipeline, MaxPage at most; those
// that are gone or cannot be read are left out. Errors: *freeslot.Error
// (invalid_argument), else what Redis said.
func (c *Cell) JobsByID(ctx context.Context, ids []string) ([]freeslot.JobStatus, error) {
	for _, id := range ids {
		if err := ValidateJobID("job_id", id); err != nil {
			return nil, err
		}
	}
	return c.statuses(ctx, ids, JobFilter{})
}
