package dispatch

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// due is an outstanding job whose record has not been read since at.
type outstandingJob struct {
	id string
	w  *waiter
	at int64
}

// recheckOlder reads the records of jobs not looked at for age, the longest first:
// one page at most, or all of them when age is 0.
func (c *client) recheckOlder(age time.Duration) {
	jobs := c.outstandingFor(age)
	if age > 0 && len(jobs) > cell.MaxPage {
		jobs = jobs[:cell.MaxPage]
	}
	for len(jobs) > 0 && c.d.ctx.Err() == nil {
		n := min(len(jobs), c.page)
		ids := make([]string, n)
		for i, j := range jobs[:n] {
			ids[i] = j.id
			j.w.mu.Lock()
			j.w.checkedAt = c.d.nodes.Now()
			j.w.mu.Unlock()
		}
		if !c.recheck(ids) {
			// Redis is away, or the results are too large to be read at once. The others
			// have their turn next time, these after them.
			c.page = max(c.page/2, 1)
			return
		}
		c.page = min(c.page*2, cell.MaxPage)
		jobs = jobs[n:]
	}
}

func (c *client) outstandingFor(age time.Duration) []outstandingJob {
	now := c.d.nodes.Now()
	var jobs []outstandingJob
	c.outstanding.Range(func(id string, w *waiter) bool {
		w.mu.Lock()
		waits, at := w.open && w.sink != nil, w.checkedAt
		w.mu.Unlock()
		if waits && now-at >= int64(age)+rand.Int64N(int64(age)/4+1) {
			jobs = append(jobs, outstandingJob{id: id, w: w, at: at})
		}
		return true
	})
	slices.SortFunc(jobs, func(a, b outstandingJob) int { return cmp.Compare(a.at, b.at) })
	return jobs
}

// recheck delivers what the records say. A record that is gone although somebody
// waits was lost with Redis' data: its waiter is told, rather than left waiting. It
// returns false when the records could not be read.
func (c *client) recheck(ids []string) bool {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	jobs, err := c.cell.JobsByID(ctx, ids)
	if err != nil {
		if c.d.ctx.Err() == nil {
			c.sampled.Warn("outstanding.recheck_failed", zap.Int("jobs", len(ids)), zap.Error(err))
		}
		return false
	}
	found := make(map[string]bool, len(jobs))
	here, moved := splitMoved(jobs)
	if !c.deliverRecords(here, found) {
		return false
	}
	// The others come last: their cells may be away.
	there, unknown := c.readElsewhere(moved)
	if !c.deliverRecords(there, found) {
		return false
	}
	var gone []string
	for _, id := range ids {
		if !found[id] && !unknown[id] && c.isRecordGone(id) {
			gone = append(gone, id)
		}
	}
	c.deliverFromOtherCells(gone, found)
	if c.d.ctx.Err() != nil { // nobody was asked
		return false
	}
	for _, id := range gone {
		if !found[id] {
			c.deliverEnd(freeslot.JobStatus{
				ID: id, State: freeslot.StateFailed,
				Error: &freeslot.JobError{Code: freeslot.JobErrorLost, Message: "the job's record is gone"},
			})
		}
	}
	return true
}

// takeIn delivers what records say, which are found thereby; as recheck.
func (c *client) deliverRecords(jobs []freeslot.JobStatus, found map[string]bool) bool {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	for i := range jobs {
		found[jobs[i].ID] = true
		c.recordFound(jobs[i].ID)
		switch {
		case jobs[i].State.Terminal():
			if !c.deliverEnded(ctx, jobs[i]) {
				return false
			}
		case jobs[i].Node != "":
			c.deliverAttempt(&jobs[i])
		}
	}
	return true
}

// isGone reports whether the record of a job that somebody waits for was not there the last time either, the rest of a
// tick ago. What ended it may lie in the stream unread: after a standstill a recheck can be faster than the reader.
func (c *client) isRecordGone(id string) bool {
	w, ok := c.outstanding.Load(id)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := c.d.nodes.Now()
	if w.missingAt == 0 {
		w.missingAt = now
	}
	if now-w.missingAt >= int64(renewInterval)/2 {
		return true
	}
	w.recheckSoon(now)
	return false
}

// missingFor is how long a record has been gone.
func (c *client) missingFor(id string) time.Duration {
	w, ok := c.outstanding.Load(id)
	if !ok {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(c.d.nodes.Now() - w.missingAt)
}

// recheckSoon has a job's record read within a tick, if somebody waits for it.
func (c *client) recheckSoon(id string) {
	if w, ok := c.outstanding.Load(id); ok {
		w.mu.Lock()
		w.recheckSoon(c.d.nodes.Now())
		w.mu.Unlock()
	}
}

// recheckSoon is called with mu held.
func (w *waiter) recheckSoon(now int64) {
	w.checkedAt = now - int64(time.Hour) // next time it is among the first
}

// recover delivers what was found by its head alone. Results are read one by one,
// so that large ones do not hold up everything else on the connection.
func (c *client) deliverEnded(ctx context.Context, head freeslot.JobStatus) bool {
	if head.State == freeslot.StateSucceeded || c.cell.AcknowledgeReplicas() > 0 { // as heads are not confirmed
		whole, err := c.d.cells.Job(ctx, "", head.ID)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			return true // as long ago as results are kept: the next recheck says so
		}
		if err != nil {
			c.sampled.Warn("outstanding.recheck_failed", zap.String("job", head.ID), zap.Error(err))
			return false
		}
		if !whole.State.Terminal() {
			return true // a failover has taken the end back
		}
		head = whole
	}
	c.deliverEnd(head)
	return true
}

// isThere takes in that the record is there, after all.
func (c *client) recordFound(id string) {
	if w, ok := c.outstanding.Load(id); ok {
		w.mu.Lock()
		w.missingAt = 0
		w.mu.Unlock()
	}
}

// began delivers the attempt that a record has; one that lies in the past, of a job with a pause
// before its next one, is as good as any. That of a job that waits again has no node any more, and
// needs none: it is told of with the attempt that comes.
func (c *client) deliverAttempt(s *freeslot.JobStatus) {
	if w, ok := c.outstanding.Load(s.ID); ok {
		w.assigned(assignmentOf(s))
	}
}

func (c *client) deliverEnd(s freeslot.JobStatus) {
	if w, ok := c.outstanding.Load(s.ID); ok {
		if s.Attempt > 0 {
			w.assigned(assignmentOf(&s))
		}
		c.answer(w, s)
	}
}
