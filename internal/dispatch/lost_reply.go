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

// recheckOlder reads the records of jobs that were not read for age, oldest first: at most one
// page, or all jobs if age is 0. So a job whose reply was lost still gets its result.
func (c *client) recheckOlder(age time.Duration) {
	ids := c.outstandingFor(age)
	if age > 0 {
		ids = ids[:min(len(ids), cell.MaxPage)]
	}
	for len(ids) > 0 && c.d.ctx.Err() == nil {
		n := min(len(ids), c.page)
		for _, id := range ids[:n] {
			c.update(id, func(w *waiter) { w.checkedAt = c.d.nodes.Now() })
		}
		if !c.recheck(ids[:n]) {
			// Redis is away, or the results are too large to be read at once. The other jobs come
			// first next time.
			c.page = max(c.page/2, 1)
			return
		}
		c.page = min(c.page*2, cell.MaxPage)
		ids = ids[n:]
	}
}

// outstandingFor returns the jobs whose records were not read for age, oldest first. The age varies
// by a quarter, so that the jobs of one batch spread out.
func (c *client) outstandingFor(age time.Duration) (ids []string) {
	now := c.d.nodes.Now()
	checkedAt := make(map[string]int64)
	c.outstanding.Range(func(id string, w *waiter) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open && w.sink != nil && now-w.checkedAt >= int64(age)+rand.Int64N(int64(age)/4+1) {
			ids, checkedAt[id] = append(ids, id), w.checkedAt
		}
		return true
	})
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(checkedAt[a], checkedAt[b]) })
	return ids
}

// recheck delivers what the records say. A missing record was lost with Redis' data, or has moved
// on. If no cell knows the job, its sink gets an error instead of waiting for ever. recheck returns
// false if the records could not be read.
func (c *client) recheck(ids []string) bool {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	jobs, err := c.cell.JobsByID(ctx, ids)
	if err != nil {
		c.warn("outstanding.recheck_failed", err, zap.Int("jobs", len(ids)))
		return false
	}
	found := make(map[string]bool, len(jobs))
	here, moved := splitMoved(jobs)
	if !c.deliverRecords(here, found) {
		return false
	}
	// Moved jobs come last: their cells may be away.
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
	if c.d.ctx.Err() != nil { // no cell was asked
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

// deliverRecords delivers what records say, and marks their jobs as found. It returns false if a
// result could not be read.
func (c *client) deliverRecords(jobs []freeslot.JobStatus, found map[string]bool) bool {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	for i := range jobs {
		found[jobs[i].ID] = true
		c.recordFound(jobs[i].ID)
		switch {
		case jobs[i].State.Terminal():
			if !c.deliverTerminal(ctx, jobs[i]) {
				return false
			}
		case jobs[i].Node != "":
			c.deliverAttempt(&jobs[i])
		}
	}
	return true
}

// isRecordGone reports whether the record of an outstanding job was already missing half a renewal
// ago. One look is not enough: the job's end may be unread in the stream, because after a
// standstill a recheck can be faster than the reader.
func (c *client) isRecordGone(id string) (gone bool) {
	now := c.d.nodes.Now()
	c.update(id, func(w *waiter) {
		if w.missingAt == 0 {
			w.missingAt = now
		}
		if gone = now-w.missingAt >= int64(renewInterval)/2; !gone {
			w.recheckSoon(now)
		}
	})
	return gone
}

// missingFor returns how long a record has been gone.
func (c *client) missingFor(id string) (gone time.Duration) {
	c.update(id, func(w *waiter) { gone = time.Duration(c.d.nodes.Now() - w.missingAt) })
	return gone
}

func (c *client) recordFound(id string) { c.update(id, func(w *waiter) { w.missingAt = 0 }) }

// recheckSoon makes the next recheck read the job's record, if the job is outstanding.
func (c *client) recheckSoon(id string) {
	c.update(id, func(w *waiter) { w.recheckSoon(c.d.nodes.Now()) })
}

// recheckSoon makes the next recheck read the record. The caller holds mu.
func (w *waiter) recheckSoon(now int64) {
	w.checkedAt = now - int64(time.Hour) // among the oldest
}

// deliverTerminal delivers the end of a job whose record was read without its result. Results are
// read one by one, so that large ones do not hold up everything else on the connection. It returns
// false if the result could not be read.
func (c *client) deliverTerminal(ctx context.Context, head freeslot.JobStatus) bool {
	if head.State == freeslot.StateSucceeded || c.cell.AcknowledgeReplicas() > 0 { // replicas have not confirmed heads
		whole, err := c.d.cells.Job(ctx, "", head.ID)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			return true // its retention has ended: the next recheck finds it gone
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

// deliverAttempt reports the attempt in the record, even if it already failed. A record has none
// while the job waits for its next attempt.
func (c *client) deliverAttempt(s *freeslot.JobStatus) {
	if w, ok := c.outstanding.Load(s.ID); ok {
		w.assigned(assignmentOf(s))
	}
}

// deliverEnd reports the last attempt and the result.
func (c *client) deliverEnd(s freeslot.JobStatus) {
	if w, ok := c.outstanding.Load(s.ID); ok {
		if s.Attempt > 0 {
			w.assigned(assignmentOf(&s))
		}
		c.answer(w, s)
	}
}
