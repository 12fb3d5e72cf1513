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

// renewInterval is the interval at which a reply stream is renewed and trimmed.
const renewInterval = time.Second

// rechecker reads the records of a cell's outstanding jobs again, because a reply can be lost. Only
// the keeper's goroutine uses it.
type rechecker struct {
	*cellClient
	// page is how many records one recheck reads.
	page int
}

func newRechecker(c *cellClient) *rechecker { return &rechecker{cellClient: c, page: cell.MaxPage} }

// recheckOlder reads the records of jobs that were not read for age, oldest first: at most one
// page, or all jobs if age is 0. So a job whose reply was lost still gets its result.
func (l *rechecker) recheckOlder(age time.Duration) {
	ids := l.outstandingFor(age)
	if age > 0 {
		ids = ids[:min(len(ids), cell.MaxPage)]
	}
	for len(ids) > 0 && l.d.ctx.Err() == nil {
		n := min(len(ids), l.page)
		for _, id := range ids[:n] {
			l.update(id, func(w *waiter) { w.checkedAt = l.d.nodes.Now() })
		}
		if !l.recheck(ids[:n]) {
			// Redis is away, or the results are too large to be read at once. The other jobs come
			// first next time.
			l.page = max(l.page/2, 1)
			return
		}
		l.page = min(l.page*2, cell.MaxPage)
		ids = ids[n:]
	}
}

// outstandingFor returns the jobs whose records were not read for age, oldest first. The age varies
// by a quarter, so that the jobs of one batch spread out.
func (l *rechecker) outstandingFor(age time.Duration) (ids []string) {
	now := l.d.nodes.Now()
	checkedAt := make(map[string]int64)
	l.outstanding.Range(func(id string, w *waiter) bool {
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
func (l *rechecker) recheck(ids []string) bool {
	ctx, cancel := l.d.timeout()
	defer cancel()
	jobs, err := l.cell.JobsByID(ctx, ids)
	if err != nil {
		l.warn("outstanding.recheck_failed", err, zap.Int("jobs", len(ids)))
		return false
	}
	found := make(map[string]bool, len(jobs))
	here, moved := splitMoved(jobs)
	if !l.deliverRecords(here, found) {
		return false
	}
	// Moved jobs come last: their cells may be away.
	there, unknown := l.readElsewhere(moved)
	if !l.deliverRecords(there, found) {
		return false
	}
	var gone []string
	for _, id := range ids {
		if !found[id] && !unknown[id] && l.isRecordGone(id) {
			gone = append(gone, id)
		}
	}
	l.deliverFromOtherCells(gone, found)
	if l.d.ctx.Err() != nil { // no cell was asked
		return false
	}
	for _, id := range gone {
		if !found[id] {
			l.deliverEnd(freeslot.JobStatus{
				ID: id, State: freeslot.StateFailed,
				Error: &freeslot.JobError{Code: freeslot.JobErrorLost, Message: "the job's record is gone"},
			})
		}
	}
	return true
}

// deliverRecords delivers what records say, and marks their jobs as found. It returns false if a
// result could not be read.
func (l *rechecker) deliverRecords(jobs []freeslot.JobStatus, found map[string]bool) bool {
	ctx, cancel := l.d.timeout()
	defer cancel()
	for i := range jobs {
		found[jobs[i].ID] = true
		l.recordFound(jobs[i].ID)
		switch {
		case jobs[i].State.Terminal():
			if !l.deliverTerminal(ctx, jobs[i]) {
				return false
			}
		case jobs[i].Node != "":
			l.deliverAttempt(&jobs[i])
		}
	}
	return true
}

// isRecordGone reports whether the record of an outstanding job was already missing half a renewal
// ago. One look is not enough: the job's end may be unread in the stream, because after a
// standstill a recheck can be faster than the reader.
func (l *rechecker) isRecordGone(id string) (gone bool) {
	now := l.d.nodes.Now()
	l.update(id, func(w *waiter) {
		if w.missingAt == 0 {
			w.missingAt = now
		}
		if gone = now-w.missingAt >= int64(renewInterval)/2; !gone {
			w.recheckSoon(now)
		}
	})
	return gone
}

// deliverTerminal delivers the end of a job whose record was read without its result. Results are
// read one by one, so that large ones do not hold up everything else on the connection. It returns
// false if the result could not be read.
func (l *rechecker) deliverTerminal(ctx context.Context, head freeslot.JobStatus) bool {
	if head.State == freeslot.StateSucceeded || l.cell.AcknowledgeReplicas() > 0 { // replicas have not confirmed heads
		whole, err := l.d.cells.Job(ctx, "", head.ID)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			return true // its retention has ended: the next recheck finds it gone
		}
		if err != nil {
			l.sampled.Warn("outstanding.recheck_failed", zap.String("job", head.ID), zap.Error(err))
			return false
		}
		if !whole.State.Terminal() {
			return true // a failover has taken the end back
		}
		head = whole
	}
	l.deliverEnd(head)
	return true
}
