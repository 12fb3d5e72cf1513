package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// MaxPage is the most jobs that one call of Jobs returns.
const MaxPage = 500

// tieRoom is how many terminal jobs may share a microsecond without being lost between pages. A
// batch gives each of its own jobs a microsecond of its own.
const tieRoom = 64

// JobFilter narrows a listing. Zero fields match everything.
type JobFilter struct {
	Tenant string
	State  freeslot.State
	// Class is a freeslot.ClassID.
	Class string
}

// JobPage is one page of a listing.
type JobPage struct {
	Jobs []freeslot.JobStatus
	// Cursor continues the listing; empty at its end. A short or even empty page can have a Cursor,
	// because filters are applied to what was read.
	Cursor string
	// Unreachable lists the cells that did not answer, whose jobs are not in the page; nil if all
	// answered.
	Unreachable []int
}

// Jobs is [Set.Jobs] for this cell alone.
func (c *Cell) Jobs(ctx context.Context, f JobFilter, cursor string, limit int) (JobPage, error) {
	return NewSet(c).Jobs(ctx, f, cursor, limit)
}

// Jobs lists jobs one page at a time, in this order:
//   - jobs for later, and jobs in a pause before their next attempt
//   - waiting jobs, by class
//   - jobs that move to another cell
//   - waiting jobs that a limit holds back, by limit
//   - running jobs, by node
//   - terminal jobs, newest first
//
// With a class in f, the waiting jobs of that class come first, in the order in which each cell
// serves them. Results are left out, because a page of large ones would hold up everything else on
// the connection; [Set.Job] brings the result.
//
// A job whose state changes during the listing can appear twice. It is never missed, unless it goes
// back to wait. The jobs of a cell that does not answer are missing, and the page names that cell.
// limit is cut to MaxPage. Errors: *freeslot.Error for a cursor that is not from a listing for this
// tenant, or from Redis if no cell answered.
func (s *Set) Jobs(ctx context.Context, f JobFilter, cursor string, limit int) (JobPage, error) {
	limit = min(max(limit, 1), MaxPage)
	at, err := openCursor(cursor, f.Tenant)
	if err != nil {
		return JobPage{}, err
	}
	if cursor == "" && f.State.Terminal() {
		at.finished = true
	}
	l := &listing{set: s, failed: make(map[int]error)}
	if at.line && f.Class == "" {
		return JobPage{}, badCursor()
	}
	if cursor == "" && f.Class != "" && (f.State == "" || f.State == freeslot.StateWaiting) {
		at.line = true
	}
	found, next := l.pageOf(ctx, at, limit, f)
	jobs := l.statuses(ctx, found, f)
	if len(l.failed) == len(s.cells) {
		return JobPage{}, errors.Join(slices.Collect(maps.Values(l.failed))...)
	}
	return JobPage{Jobs: jobs, Cursor: next.cursor(f.Tenant), Unreachable: slices.Sorted(maps.Keys(l.failed))}, nil
}

// listed is a job at its place in the listing. A position is valid in every cell, because all cells
// share one order of nodes and times.
type listed struct {
	cell int
	node string  // the node that owns the job, or the place of a job without one
	us   float64 // the time at which a terminal job ended; in a class's queue, the score
	due  int64   // the time at which a job at placeDue continues, in ms
	job  string
}

// listing is the reading of one page. It does not ask a cell again that failed.
type listing struct {
	set    *Set
	failed map[int]error
}

// page reads the page after at. If the unfinished jobs end within it, terminal jobs follow if the
// filter wants them.
func (l *listing) page(ctx context.Context, at position, limit int, f JobFilter) (found []listed, next *position) {
	state := f.State
	if !at.finished {
		found = l.merge(limit, func(a, b listed) int {
			return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.job, b.job))
		}, func(c *Cell) ([]listed, error) { return c.livingPage(ctx, at, limit, f) })
		if len(found) == limit {
			return found, &position{place: found[limit-1].node, job: found[limit-1].job}
		}
		if state != "" && !state.Terminal() {
			return found, nil
		}
		at = position{finished: true}
	}
	rest := limit - len(found)
	ended := l.merge(rest, func(a, b listed) int {
		return cmp.Or(cmp.Compare(b.us, a.us), cmp.Compare(b.job, a.job))
	}, func(c *Cell) ([]listed, error) { return c.finishedPage(ctx, at, rest) })
	if len(ended) == rest {
		last := ended[rest-1]
		next = &position{finished: true, place: strconv.FormatFloat(last.us, 'f', 0, 64), job: last.job}
	}
	return append(found, ended...), next
}

// merge asks every cell and keeps the first limit jobs in order.
func (l *listing) merge(limit int, order func(a, b listed) int, read func(c *Cell) ([]listed, error)) []listed {
	parts := make([][]listed, len(l.set.cells))
	l.ask(func(i int, c *Cell) (err error) {
		parts[i], err = read(c)
		return err
	})
	var all []listed
	for i, part := range parts {
		for j := range part {
			part[j].cell = i
		}
		all = append(all, part...)
	}
	slices.SortFunc(all, order)
	return all[:min(len(all), limit)]
}

// ask runs f at the same time for every cell that has not failed. i is the cell's index in the set.
func (l *listing) ask(f func(i int, c *Cell) error) {
	place := make(map[*Cell]int, len(l.set.cells))
	for i, c := range l.set.cells {
		place[c] = i
	}
	for i, err := range l.set.each(func(c *Cell) error {
		if l.failed[place[c]] != nil {
			return nil
		}
		return f(place[c], c)
	}) {
		if err != nil {
			l.failed[i] = err
		}
	}
}

// statuses reads the records, in the order in which the jobs were found.
func (l *listing) statuses(ctx context.Context, found []listed, f JobFilter) []freeslot.JobStatus {
	ids := make([][]string, len(l.set.cells))
	for _, j := range found {
		ids[j.cell] = append(ids[j.cell], j.job)
	}
	parts := make([][]record, len(l.set.cells))
	l.ask(func(i int, c *Cell) (err error) {
		parts[i], err = c.records(ctx, ids[i], f)
		return err
	})
	var jobs []freeslot.JobStatus
	for _, j := range found {
		if rest := parts[j.cell]; len(rest) > 0 && rest[0].id == j.job {
			if j.is(rest[0].State) {
				rest[0].RunAtMS = j.due
				jobs = append(jobs, rest[0].JobStatus)
			}
			parts[j.cell] = rest[1:]
		}
	}
	return once(jobs)
}

// The places of jobs that no node owns. No node has such a name, and all of them sort before the
// names of nodes.
const (
	placeDue     = "+"  // jobs in the index of due jobs; their records say which are in a pause
	placeQueue   = "+c" // followed by the class
	placeMove    = "+m" // jobs that move
	placeLimited = "+p" // followed by the limit that holds them back
)

// is reports whether a job in this state belongs where it was found. The index of due jobs has
// others as well, and a job may have changed its place since.
func (j *listed) is(state freeslot.State) bool {
	switch {
	case j.node == placeDue:
		return state == freeslot.StateRetryWait || state == freeslot.StateScheduled
	case strings.HasPrefix(j.node, placeQueue), strings.HasPrefix(j.node, placeLimited):
		return state == freeslot.StateWaiting
	case j.node == placeMove:
		return state == freeslot.StateMoving
	default:
		return true
	}
}

// once drops a moving job that was also found in the cell that it moves to.
func once(jobs []freeslot.JobStatus) []freeslot.JobStatus {
	there := make(map[string]bool)
	for i := range jobs {
		there[jobs[i].ID] = there[jobs[i].ID] || jobs[i].State != freeslot.StateMoving
	}
	return slices.DeleteFunc(jobs, func(s freeslot.JobStatus) bool {
		return s.State == freeslot.StateMoving && there[s.ID]
	})
}

// livingPage reads jobs that have not ended, in the order of place and job, after at.
func (c *Cell) livingPage(ctx context.Context, at position, limit int, f JobFilter) ([]listed, error) {
	places, err := c.places(ctx, f)
	if err != nil {
		return nil, err
	}
	if f.Class != "" { // its queue was listed already
		places = slices.DeleteFunc(places, func(p string) bool { return strings.HasPrefix(p, placeQueue) })
	}
	from, _ := slices.BinarySearch(places, at.place)
	var found []listed
	for _, n := range places[from:] {
		there, err := c.livingAt(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("list jobs of %s: %w", n, err)
		}
		slices.SortFunc(there, func(a, b listed) int { return cmp.Compare(a.job, b.job) })
		for _, j := range there {
			if j.job == "sum" || n == at.place && j.job <= at.job {
				continue
			}
			found = append(found, j)
			if len(found) == limit {
				return found, nil
			}
		}
	}
	return found, nil
}

// livingAt returns the jobs at one place, in no order.
func (c *Cell) livingAt(ctx context.Context, place string) (there []listed, err error) {
	if place == placeDue {
		all := c.client.B().Zrange().Key(c.layout.Due()).Min("0").Max("-1").Withscores().Build()
		due, err := c.runner.Do(ctx, "list", all).AsZScores()
		for _, z := range due {
			there = append(there, listed{node: place, job: z.Member, due: int64(z.Score)})
		}
		return there, err
	}
	jobs, err := c.runner.Do(ctx, "list", c.jobsAt(place)).AsStrSlice()
	for _, job := range jobs {
		if strings.HasPrefix(place, placeLimited) {
			job = limitedJob(job)
		}
		there = append(there, listed{node: place, job: job})
	}
	return there, err
}

// places returns the places at which the filter's jobs can be before they end, sorted.
func (c *Cell) places(ctx context.Context, f JobFilter) (places []string, err error) {
	state := f.State
	if state == "" || state == freeslot.StateRetryWait || state == freeslot.StateScheduled {
		places = append(places, placeDue)
	}
	if state == "" || state == freeslot.StateWaiting {
		classes, err := c.runner.Do(ctx, "list", c.client.B().Hkeys().Key(c.layout.Waiting()).Build()).AsStrSlice()
		if err != nil {
			return nil, fmt.Errorf("list classes: %w", err)
		}
		for _, class := range classes {
			places = append(places, placeQueue+class)
		}
		limits, err := c.runner.Do(ctx, "list", c.all(c.layout.FullLimits())).AsStrSlice()
		if err != nil {
			return nil, fmt.Errorf("list limits: %w", err)
		}
		for _, name := range limits {
			if f.Tenant == "" || limitTenant(name) == f.Tenant { // a cursor names its place
				places = append(places, placeLimited+name)
			}
		}
	}
	if state == "" || state == freeslot.StateMoving {
		places = append(places, placeMove)
	}
	if state == "" || state == freeslot.StateRunning || state == freeslot.StateCancelling {
		nodes, err := c.runner.Do(ctx, "list", c.all(c.layout.Revisions())).AsStrSlice()
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		places = append(places, slices.DeleteFunc(nodes, func(n string) bool { return strings.HasPrefix(n, "-") })...)
	}
	slices.Sort(places)
	return places, nil
}

func (c *Cell) jobsAt(place string) rueidis.Completed {
	if place == placeMove {
		return c.all(c.layout.Moves())
	}
	if class, ok := strings.CutPrefix(place, placeQueue); ok {
		return c.all(c.layout.Queue(class))
	}
	if name, ok := strings.CutPrefix(place, placeLimited); ok {
		return c.all(c.layout.LimitedBy(name))
	}
	return c.client.B().Hkeys().Key(c.layout.Slots(place)).Build()
}

// all returns the command that reads all members of a sorted set, in order.
func (c *Cell) all(key string) rueidis.Completed {
	return c.client.B().Zrange().Key(key).Min("0").Max("-1").Build()
}

// finishedPage reads terminal jobs, newest first, after at.
func (c *Cell) finishedPage(ctx context.Context, at position, limit int) ([]listed, error) {
	last, top := at.microsecond(), cmp.Or(at.place, "+inf")
	cmd := c.client.B().Zrevrangebyscore().Key(c.layout.Finished()).Max(top).Min("-inf").Withscores().
		Limit(0, int64(limit+tieRoom)).Build()
	scores, err := c.runner.Do(ctx, "list", cmd).AsZScores()
	if err != nil {
		return nil, fmt.Errorf("list finished jobs: %w", err)
	}
	var found []listed
	for _, z := range scores {
		if z.Score == last && z.Member >= at.job && at.job != "" {
			continue
		}
		found = append(found, listed{us: z.Score, job: z.Member})
		if len(found) == limit {
			break
		}
	}
	return found, nil
}

// statuses reads records without their results, and drops those that are gone, unreadable or
// outside of the filter.
func (c *Cell) statuses(ctx context.Context, ids []string, f JobFilter) ([]freeslot.JobStatus, error) {
	found, err := c.records(ctx, ids, f)
	if err != nil {
		return nil, err
	}
	jobs := make([]freeslot.JobStatus, len(found))
	for i := range found {
		jobs[i] = found[i].JobStatus
	}
	return jobs, nil
}

// record is a job's status with the id that the job has in its cell.
type record struct {
	id string
	freeslot.JobStatus
}

// records reads records without their results, in one pipeline. It drops those that are gone,
// cannot be read or do not fit the filter, and keeps the order of the others.
func (c *Cell) records(ctx context.Context, ids []string, f JobFilter) ([]record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	cmds := make([]rueidis.Completed, 0, len(ids))
	for _, id := range ids {
		// Pinned: if a connection dies, rueidis asks again on another one and recycles the
		// commands. The dead connection's writer may still read them then.
		cmds = append(cmds, c.client.B().Hmget().Key(c.layout.Job(id)).Field(headFields...).Build().Pin())
	}
	jobs := make([]record, 0, len(ids))
	for i, result := range c.client.DoMulti(ctx, cmds...) {
		s, err := c.statusReply(ids[i], result)
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
		if (f.Tenant == "" || s.Tenant == f.Tenant) && (f.State == "" || s.State == f.State) &&
			(f.Class == "" || s.Class == f.Class) {
			jobs = append(jobs, record{id: ids[i], JobStatus: s})
		}
	}
	return jobs, nil
}

// JobsByID reads the records of several jobs of this cell without their results, in one pipeline.
// At most MaxPage ids are allowed. It leaves out records that are gone or cannot be read. Errors:
// *freeslot.Error (invalid_argument), or from Redis.
func (c *Cell) JobsByID(ctx context.Context, ids []string) ([]freeslot.JobStatus, error) {
	for _, id := range ids {
		if err := ValidateJobID("job_id", id); err != nil {
			return nil, err
		}
	}
	return c.statuses(ctx, ids, JobFilter{})
}

// pageOf is page, but reads a class's queue first if the filter names a class.
func (l *listing) pageOf(ctx context.Context, at position, limit int, f JobFilter) (found []listed, next *position) {
	if !at.line {
		return l.page(ctx, at, limit, f)
	}
	found = l.merge(limit, func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.us, b.us), cmp.Compare(a.job, b.job))
	}, func(c *Cell) ([]listed, error) { return c.queuePage(ctx, f.Class, at, limit) })
	switch {
	case len(found) == limit:
		last := found[limit-1]
		return found, &position{line: true, place: strconv.FormatFloat(last.us, 'f', 0, 64), job: last.job}
	default:
		others, next := l.page(ctx, position{}, limit-len(found), f)
		return append(found, others...), next
	}
}

// queuePage reads waiting jobs of a class after at, in the order in which they are served.
func (c *Cell) queuePage(ctx context.Context, class string, at position, limit int) (found []listed, err error) {
	line, from := c.layout.Queue(class), int64(0)
	score := -1.0
	if at.place != "" {
		score = at.score()
		// The job that at names may be gone by now.
		count := c.client.B().Zcount().Key(line).Min("-inf").Max("(" + at.place).Build()
		if from, err = c.runner.Do(ctx, "list", count).AsInt64(); err != nil {
			return nil, fmt.Errorf("list queue of class %s: %w", class, err)
		}
	}
	for {
		jobs, err := c.queueFrom(ctx, line, from, limit)
		if err != nil {
			return nil, fmt.Errorf("list queue of class %s: %w", class, err)
		}
		for _, z := range jobs {
			if z.Score == score && z.Member <= at.job {
				continue
			}
			found = append(found, listed{node: placeQueue + class, us: z.Score, job: z.Member})
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

func (c *Cell) queueFrom(ctx context.Context, line string, from int64, limit int) ([]rueidis.ZScore, error) {
	first, last := strconv.FormatInt(from, 10), strconv.FormatInt(from+int64(limit)-1, 10)
	cmd := c.client.B().Zrange().Key(line).Min(first).Max(last).Withscores().Build()
	return c.runner.Do(ctx, "list", cmd).AsZScores()
}

// JobsByID reads the records of several jobs without their results, at most MaxPage a cell and in
// no order. It leaves out records that are gone or cannot be read, and ids of cells that do not
// exist. failed holds the cells that did not answer, so nothing is known of their jobs; nil if all
// did.
func (s *Set) JobsByID(ctx context.Context, ids []string) (jobs []freeslot.JobStatus, failed map[int]error) {
	groups := make([][]string, len(s.cells))
	for _, id := range ids {
		if c, ok := s.OfJob(id); ok {
			groups[c.cfg.Index] = append(groups[c.cfg.Index], id)
		}
	}
	found := make([][]freeslot.JobStatus, len(s.cells))
	failed = byCell(s.each(func(c *Cell) (err error) {
		found[c.cfg.Index], err = c.statuses(ctx, groups[c.cfg.Index], JobFilter{})
		return err
	}))
	for _, part := range found {
		jobs = append(jobs, part...)
	}
	return jobs, failed
}
