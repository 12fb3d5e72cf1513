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

// tieRoom is how many terminal jobs can share a microsecond and still be paged
// without loss: a batch gives each of its own a microsecond of its own.
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
	// Cursor continues the listing; empty at its end. A page can be short, even
	// empty, and still have a Cursor: filters are applied to what was read.
	Cursor string
	// Unreachable are the cells that did not answer, whose jobs are not in the page;
	// nil when all did.
	Unreachable []int
}

// Jobs is [Set.Jobs] of this cell alone.
func (c *Cell) Jobs(ctx context.Context, f JobFilter, cursor string, limit int) (JobPage, error) {
	return NewSet(c).Jobs(ctx, f, cursor, limit)
}

// Jobs lists jobs for later and those with a pause before their next attempt, then those that wait, by class
// and by the limit that holds them back,
// running ones by node, and terminal ones, the newest first; one page at a time, without
// their results: a page of large ones would hold up everything else on the connection. Job
// brings the result. A job that moves on while the listing goes on can be seen twice, never
// missed, unless it goes back to wait. The jobs of a cell that does not answer are missing:
// the page names it. Those of one class that wait are listed in the order in which each cell serves
// them. limit is cut to MaxPage. Errors: *freeslot.Error for a cursor that is not of a listing
// for this tenant, else what Redis said when no cell answered.
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

// listed is a job at its place in the listing. A position is valid in every cell,
// because the order of nodes and times is one for all.
type listed struct {
	cell int
	node string  // of an owned job; the place of one that waits
	us   float64 // when a terminal one ended; the score of one that waits, where a class is listed
	due  int64   // when one at placeDue goes on, in ms
	job  string
}

// listing is one page under way. A cell that failed is not asked again.
type listing struct {
	set    *Set
	failed map[int]error
}

// page reads one page behind at. Where the owned jobs end on the way, the terminal
// ones follow if they are wanted.
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

// merge asks every cell and keeps the first limit in order.
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

// ask runs f for every cell that has not failed, side by side; i is its place.
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

// statuses reads the records in the order in which they were found.
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

// Where jobs are listed that no node owns. No node is called so, and they come before all
// nodes.
const (
	placeDue   = "+"  // those that are due some time; which have a pause is in their records
	placeQueue = "+c" // and the class
	placeMove  = "+m" // those that move
	placeHeld  = "+p" // and the limit that holds them back
)

// is reports whether a job in this state belongs where it was found: in the index of due
// jobs are others as well, and one may have moved on since.
func (j *listed) is(state freeslot.State) bool {
	switch {
	case j.node == placeDue:
		return state == freeslot.StateRetryWait || state == freeslot.StateScheduled
	case strings.HasPrefix(j.node, placeQueue), strings.HasPrefix(j.node, placeHeld):
		return state == freeslot.StateWaiting
	case j.node == placeMove:
		return state == freeslot.StateMoving
	default:
		return true
	}
}

// once leaves out jobs that move and that were found where they go as well.
func once(jobs []freeslot.JobStatus) []freeslot.JobStatus {
	there := make(map[string]bool)
	for i := range jobs {
		there[jobs[i].ID] = there[jobs[i].ID] || jobs[i].State != freeslot.StateMoving
	}
	return slices.DeleteFunc(jobs, func(s freeslot.JobStatus) bool { return s.State == freeslot.StateMoving && there[s.ID] })
}

// livingPage reads jobs that have not ended, in the order of place and job, behind at.
func (c *Cell) livingPage(ctx context.Context, at position, limit int, f JobFilter) ([]listed, error) {
	places, err := c.places(ctx, f)
	if err != nil {
		return nil, err
	}
	if f.Class != "" { // its queue was listed before
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

// livingAt reads what is at one place, in no order.
func (c *Cell) livingAt(ctx context.Context, place string) (there []listed, err error) {
	if place == placeDue {
		due, err := c.runner.Do(ctx, "list", c.client.B().Zrange().Key(c.layout.Due()).Min("0").Max("-1").Withscores().Build()).AsZScores()
		for _, z := range due {
			there = append(there, listed{node: place, job: z.Member, due: int64(z.Score)})
		}
		return there, err
	}
	jobs, err := c.runner.Do(ctx, "list", c.jobsAt(place)).AsStrSlice()
	for _, job := range jobs {
		if strings.HasPrefix(place, placeHeld) {
			job = parkedJob(job)
		}
		there = append(there, listed{node: place, job: job})
	}
	return there, err
}

// places are where jobs of the filter can be found before they end, sorted.
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
		gates, err := c.runner.Do(ctx, "list", c.client.B().Zrange().Key(c.layout.Parked()).Min("0").Max("-1").Build()).AsStrSlice()
		if err != nil {
			return nil, fmt.Errorf("list limits: %w", err)
		}
		for _, gate := range gates {
			if f.Tenant == "" || limitTenant(gate) == f.Tenant { // a cursor names its place
				places = append(places, placeHeld+gate)
			}
		}
	}
	if state == "" || state == freeslot.StateMoving {
		places = append(places, placeMove)
	}
	if state == "" || state == freeslot.StateRunning || state == freeslot.StateCancelling {
		nodes, err := c.runner.Do(ctx, "list", c.client.B().Zrange().Key(c.layout.Revisions()).Min("0").Max("-1").Build()).AsStrSlice()
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
		return c.client.B().Zrange().Key(c.layout.Moves()).Min("0").Max("-1").Build()
	}
	if class, ok := strings.CutPrefix(place, placeQueue); ok {
		return c.client.B().Zrange().Key(c.layout.Queue(class)).Min("0").Max("-1").Build()
	}
	if gate, ok := strings.CutPrefix(place, placeHeld); ok {
		return c.client.B().Zrange().Key(c.layout.ParkedAt(gate)).Min("0").Max("-1").Build()
	}
	return c.client.B().Hkeys().Key(c.layout.Slots(place)).Build()
}

// finishedPage reads terminal jobs, the newest first, behind at.
func (c *Cell) finishedPage(ctx context.Context, at position, limit int) ([]listed, error) {
	last, top := at.microsecond(), cmp.Or(at.place, "+inf")
	cmd := c.client.B().Zrevrangebyscore().Key(c.layout.Finished()).Max(top).Min("-inf").Withscores().Limit(0, int64(limit+tieRoom)).Build()
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

// statuses are those of records.
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

// record is a job's, by the id that it has in its cell.
type record struct {
	id string
	freeslot.JobStatus
}

// records reads records, but for their results, in one pipeline and drops those
// that are gone, cannot be read or do not fit the filter. Their order stays.
func (c *Cell) records(ctx context.Context, ids []string, f JobFilter) ([]record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	cmds := make([]rueidis.Completed, 0, len(ids))
	for _, id := range ids {
		// Pinned: when a connection dies, rueidis asks again on another one and recycles
		// the commands while the dead connection's writer may still read them.
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
		if (f.Tenant == "" || s.Tenant == f.Tenant) && (f.State == "" || s.State == f.State) && (f.Class == "" || s.Class == f.Class) {
			jobs = append(jobs, record{id: ids[i], JobStatus: s})
		}
	}
	return jobs, nil
}

// JobsByID reads the records of several jobs of this cell, but for their results, in
// one pipeline, MaxPage at most; those that are gone or cannot be read are left out.
// Errors: *freeslot.Error (invalid_argument), else what Redis said.
func (c *Cell) JobsByID(ctx context.Context, ids []string) ([]freeslot.JobStatus, error) {
	for _, id := range ids {
		if err := ValidateJobID("job_id", id); err != nil {
			return nil, err
		}
	}
	return c.statuses(ctx, ids, JobFilter{})
}

// pageOf is page, but reads the queue first where a class is listed.
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

// queuePage reads jobs of a class that wait, in the order in which they are served, behind at.
func (c *Cell) queuePage(ctx context.Context, class string, at position, limit int) (found []listed, err error) {
	line, from := c.layout.Queue(class), int64(0)
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
	cmd := c.client.B().Zrange().Key(line).Min(strconv.FormatInt(from, 10)).Max(strconv.FormatInt(from+int64(limit)-1, 10)).Withscores().Build()
	return c.runner.Do(ctx, "list", cmd).AsZScores()
}
