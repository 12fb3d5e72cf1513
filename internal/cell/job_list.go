package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// MaxPage is the most jobs that one call of Jobs returns.
const MaxPage = 500

// MaxLook is the most jobs that one call of Jobs looks at.
const MaxLook = 2000

// Bounds of the nodes that a listing asks: in one pipeline, and in each cell for a round. A page
// has at most maxRounds rounds.
const (
	nodeBatch = 100
	maxNodes  = 2000
	maxRounds = 10
)

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
// Jobs for later come in the order of their times, jobs that wait in the order of their scores.
//
// With a class in f, the waiting jobs of that class come first, in the order in which each cell
// serves them. Results are left out, because a page of large ones would hold up everything else on
// the connection; [Set.Job] brings the result.
//
// A job whose state changes during the listing can appear twice. It is never missed, unless it goes
// back to wait, or its node has not been among the owners yet (see SetOwners). The jobs of a cell
// that does not answer are missing, and the page names that cell. limit is cut to MaxPage. Errors:
// *freeslot.Error for a cursor that is not from a listing for this tenant, or from Redis if no cell
// answered.
func (s *Set) Jobs(ctx context.Context, f JobFilter, cursor string, limit int) (JobPage, error) {
	limit = min(max(limit, 1), MaxPage)
	at, err := openCursor(cursor, f.Tenant)
	if err != nil {
		return JobPage{}, err
	}
	if cursor == "" && f.endedAlone() {
		at.finished = true
	}
	l := &listing{set: s, failed: make(map[int]error)}
	if at.line && f.Class == "" {
		return JobPage{}, badCursor()
	}
	if cursor == "" && f.Class != "" && (f.State == "" || f.State == freeslot.StateWaiting) {
		at.line = true
	}
	page, next := l.fill(ctx, at, limit, f)
	if len(l.failed) == len(s.cells) {
		return JobPage{}, errors.Join(slices.Collect(maps.Values(l.failed))...)
	}
	page.Jobs, page.Cursor = once(page.Jobs), next.cursor(f.Tenant)
	page.SinceMS = l.since(ctx, next, f)
	page.Unreachable = slices.Sorted(maps.Keys(l.failed))
	return page, nil
}

// fill looks at jobs after at until limit of them fit, and returns where the listing goes on.
func (l *listing) fill(ctx context.Context, at position, limit int, f JobFilter) (page JobPage, next *position) {
	for range maxRounds {
		n := limit - len(page.Jobs)
		if f.narrow() {
			n = MaxPage
		}
		var found []listed
		found, next = l.pageOf(ctx, at, min(n, MaxLook-page.LookedAt), f)
		page.LookedAt += len(found)
		fit := l.statuses(ctx, found, f)
		if room := limit - len(page.Jobs); len(fit) > room {
			fit = fit[:room]
			next = found[fit[room-1].at].position()
		}
		for i := range fit {
			page.Jobs = append(page.Jobs, fit[i].JobStatus)
		}
		if next == nil || len(page.Jobs) == limit || page.LookedAt >= MaxLook || len(l.failed) == len(l.set.cells) {
			break
		}
		at = *next
	}
	return page, next
}

// page reads the page after at. If the unfinished jobs end within it, terminal jobs follow if the
// filter wants them.
func (l *listing) page(ctx context.Context, at position, limit int, f JobFilter) (found []listed, next *position) {
	state := f.State
	if !at.finished {
		if found, next = l.living(ctx, at, limit, f); next != nil || state != "" && !state.Terminal() {
			return found, next
		}
		at = position{finished: true}
	}
	rest := limit - len(found)
	ended := l.merge(rest, func(a, b listed) int {
		return cmp.Or(cmp.Compare(b.us, a.us), cmp.Compare(b.job, a.job))
	}, func(c *Cell) ([]listed, error) { return c.finishedPage(ctx, at, rest, f) })
	if len(ended) == rest {
		next = ended[rest-1].position()
	}
	return append(found, ended...), next
}

// afterAll sorts after the id of every job.
const afterAll = "z"

// living reads jobs that have not ended. A cell that asked as many nodes as it may ends the page
// there for all cells.
func (l *listing) living(ctx context.Context, at position, limit int, f JobFilter) (found []listed, next *position) {
	var mu sync.Mutex
	end := "" // the last place that all cells have read; "" if they read all
	found = l.merge(limit, func(a, b listed) int {
		return cmp.Or(
			cmp.Compare(a.node, b.node), cmp.Compare(a.us, b.us), cmp.Compare(a.member, b.member), cmp.Compare(a.job, b.job),
		)
	}, func(c *Cell) ([]listed, error) {
		found, last, err := c.livingPage(ctx, l.set, at, limit, f)
		mu.Lock()
		defer mu.Unlock()
		if last != "" && (end == "" || last < end) {
			end = last
		}
		return found, err
	})
	if end != "" {
		found = found[:sort.Search(len(found), func(i int) bool { return found[i].node > end })]
	}
	if len(found) == limit {
		return found, found[limit-1].position()
	}
	if end != "" {
		return found, &position{place: end, job: afterAll}
	}
	return found, nil
}

// fitting is a job that fits the filter: the one at this index of those that were found.
type fitting struct {
	at int
	freeslot.JobStatus
}

// statuses reads the records, in the order in which the jobs were found.
func (l *listing) statuses(ctx context.Context, found []listed, f JobFilter) []fitting {
	ids := make([][]string, len(l.set.cells))
	for _, j := range found {
		ids[j.cell] = append(ids[j.cell], j.job)
	}
	parts := make([][]record, len(l.set.cells))
	l.ask(func(i int, c *Cell) (err error) {
		parts[i], err = c.records(ctx, ids[i], f)
		return err
	})
	var jobs []fitting
	for i, j := range found {
		if rest := parts[j.cell]; len(rest) > 0 && rest[0].id == j.job {
			if j.is(rest[0].State) {
				rest[0].RunAtMS = j.due
				jobs = append(jobs, fitting{i, rest[0].JobStatus})
			}
			parts[j.cell] = rest[1:]
		}
	}
	return jobs
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

// livingPage reads jobs that have not ended, in the order of place and job, after at; at a place
// with a sorted set in the set's order. last is the last place that it read; "" if it read all, or
// found limit jobs.
func (c *Cell) livingPage(
	ctx context.Context, set *Set, at position, limit int, f JobFilter,
) (found []listed, last string, err error) {
	places, err := c.places(ctx, set, f)
	if err != nil {
		return nil, "", err
	}
	if f.Class != "" { // its queue was listed already
		places = slices.DeleteFunc(places, func(p string) bool { return strings.HasPrefix(p, placeQueue) })
	}
	from, _ := slices.BinarySearch(places, at.place)
	asked := 0
	for places = places[from:]; len(places) > 0; {
		if key := c.setAt(places[0]); key != "" {
			there, err := c.setPage(ctx, key, places[0], at, limit-len(found))
			if err != nil {
				return nil, "", fmt.Errorf("list jobs of %s: %w", places[0], err)
			}
			if found = append(found, there...); len(found) == limit {
				return found, "", nil
			}
			places = places[1:]
			continue
		}
		some := places[:1]
		if !strings.HasPrefix(places[0], placeDue) { // only nodes follow
			some = places[:min(len(places), nodeBatch)]
			asked += len(some)
		}
		parts, err := c.livingAt(ctx, some)
		if err != nil {
			return nil, "", fmt.Errorf("list jobs of %s: %w", some[0], err)
		}
		for _, there := range parts {
			slices.SortFunc(there, func(a, b listed) int { return cmp.Compare(a.job, b.job) })
			for _, j := range there {
				if j.job == "sum" || j.node == at.place && j.job <= at.job {
					continue
				}
				if found = append(found, j); len(found) == limit {
					return found, "", nil
				}
			}
		}
		if places = places[len(some):]; asked >= maxNodes && len(places) > 0 {
			return found, some[len(some)-1], nil
		}
	}
	return found, "", nil
}

// livingAt returns the jobs at each of the places, in no order. It asks for them in one pipeline.
func (c *Cell) livingAt(ctx context.Context, places []string) (parts [][]listed, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	cmds := make([]rueidis.Completed, len(places))
	for i, place := range places {
		cmds[i] = c.jobsAt(place).Pin() // as in records
	}
	for i, result := range c.client.DoMulti(ctx, cmds...) {
		there, err := readPlace(places[i], result)
		if err != nil {
			return nil, err
		}
		parts = append(parts, there)
	}
	return parts, nil
}

// readPlace reads the answer to the command that jobsAt returns.
func readPlace(place string, result rueidis.RedisResult) (there []listed, err error) {
	jobs, err := result.AsStrSlice()
	for _, job := range jobs {
		there = append(there, listed{node: place, job: job})
	}
	return there, err
}

// setAt returns the key of the sorted set of the jobs at a place; empty for another kind of place.
// These sets can have a million members, so they are read page by page.
func (c *Cell) setAt(place string) string {
	if place == placeDue {
		return c.layout.Due()
	}
	if class, ok := strings.CutPrefix(place, placeQueue); ok {
		return c.layout.Queue(class)
	}
	if name, ok := strings.CutPrefix(place, placeLimited); ok {
		return c.layout.LimitedBy(name)
	}
	return ""
}

// setPage reads jobs of a sorted set after at, in the set's order.
func (c *Cell) setPage(ctx context.Context, key, place string, at position, limit int) (there []listed, err error) {
	var after *rueidis.ZScore
	if at.scored && at.place == place {
		after = &rueidis.ZScore{Member: at.job, Score: at.score}
	}
	members, err := c.membersAfter(ctx, key, after, limit)
	for _, z := range members {
		j := listed{node: place, us: z.Score, member: z.Member, job: z.Member}
		switch {
		case place == placeDue:
			j.due = int64(z.Score)
		case strings.HasPrefix(place, placeLimited):
			j.job = limitedJob(z.Member)
		}
		there = append(there, j)
	}
	return there, err
}

// places returns the places at which the filter's jobs can be before they end, sorted.
func (c *Cell) places(ctx context.Context, set *Set, f JobFilter) (places []string, err error) {
	state := f.State
	if state == "" || state == freeslot.StateRetryWait || state == freeslot.StateScheduled {
		places = append(places, placeDue)
	}
	if f.Node == "" && (state == "" || state == freeslot.StateWaiting) {
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
	if f.Node == "" && (state == "" || state == freeslot.StateMoving) {
		places = append(places, placeMove)
	}
	if state == "" || state == freeslot.StateRunning || state == freeslot.StateCancelling {
		nodes, err := c.owners(ctx, set, f)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		places = append(places, nodes...)
	}
	slices.Sort(places)
	return places, nil
}

// owners returns the nodes that may own jobs which fit.
func (c *Cell) owners(ctx context.Context, set *Set, f JobFilter) ([]string, error) {
	if f.Node != "" {
		return []string{f.Node}, nil
	}
	if owners := set.owners.Load(); owners != nil {
		if nodes, ok := (*owners)(c.cfg.Index); ok {
			return nodes, nil
		}
	}
	nodes, err := c.runner.Do(ctx, "list", c.all(c.layout.Revisions())).AsStrSlice()
	return slices.DeleteFunc(nodes, func(n string) bool { return strings.HasPrefix(n, "-") }), err
}

// jobsAt returns the command that reads the jobs at a place without a sorted set, and moving jobs.
func (c *Cell) jobsAt(place string) rueidis.Completed {
	if place == placeMove {
		return c.all(c.layout.Moves())
	}
	return c.client.B().Hkeys().Key(c.layout.Slots(place)).Build()
}

// all returns the command that reads all members of a sorted set, in order.
func (c *Cell) all(key string) rueidis.Completed {
	return c.client.B().Zrange().Key(key).Min("0").Max("-1").Build()
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
		if f.fits(&s) {
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
		return found, found[limit-1].position()
	default:
		others, next := l.page(ctx, position{}, limit-len(found), f)
		return append(found, others...), next
	}
}

// queuePage reads waiting jobs of a class after at, in the order in which they are served.
func (c *Cell) queuePage(ctx context.Context, class string, at position, limit int) (found []listed, err error) {
	var after *rueidis.ZScore
	if at.place != "" {
		after = &rueidis.ZScore{Member: at.job, Score: at.number()}
	}
	jobs, err := c.membersAfter(ctx, c.layout.Queue(class), after, limit)
	if err != nil {
		return nil, fmt.Errorf("list queue of class %s: %w", class, err)
	}
	for _, z := range jobs {
		found = append(found, listed{node: placeQueue + class, us: z.Score, job: z.Member, line: true})
	}
	return found, nil
}

// membersAfter returns at most limit members of a sorted set, after one that may be gone by now, or
// from its beginning after nil.
func (c *Cell) membersAfter(
	ctx context.Context, key string, after *rueidis.ZScore, limit int,
) (found []rueidis.ZScore, err error) {
	if after == nil {
		return c.members(ctx, key, 0, limit)
	}
	rank, err := c.runner.Do(ctx, "list", c.client.B().Zrank().Key(key).Member(after.Member).Build()).AsInt64()
	if err == nil {
		// As many may have its score as the set has members. The first tells whether it is still there.
		found, err = c.members(ctx, key, rank, limit+1)
		if err == nil && len(found) > 0 && found[0] == *after {
			return found[1:], nil
		}
	}
	if rueidisNil(err) != nil {
		return nil, err
	}
	before := c.client.B().Zcount().Key(key).Min("-inf").Max("(" + strconv.FormatFloat(after.Score, 'f', -1, 64)).Build()
	from, err := c.runner.Do(ctx, "list", before).AsInt64()
	if err != nil {
		return nil, err
	}
	for found = nil; ; from += int64(limit) {
		some, err := c.members(ctx, key, from, limit)
		if err != nil {
			return nil, err
		}
		for _, z := range some {
			if z.Score == after.Score && z.Member <= after.Member {
				continue
			}
			if found = append(found, z); len(found) == limit {
				return found, nil
			}
		}
		if len(some) < limit {
			return found, nil
		}
	}
}

func (c *Cell) members(ctx context.Context, key string, from int64, limit int) ([]rueidis.ZScore, error) {
	first, last := strconv.FormatInt(from, 10), strconv.FormatInt(from+int64(limit)-1, 10)
	cmd := c.client.B().Zrange().Key(key).Min(first).Max(last).Withscores().Build()
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
