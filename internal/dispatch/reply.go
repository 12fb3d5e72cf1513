package dispatch

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	replyBlock   = 5 * time.Second
	replyPage    = 512
	keepInterval = time.Second
	// ioTimeout bounds calls that have no caller to give up on them.
	ioTimeout = 2 * time.Second
)

// position is the last reply taken in, as the keeper trims to it.
type position struct{ id atomic.Pointer[string] }

func (p *position) load() string {
	if id := p.id.Load(); id != nil {
		return *id
	}
	return ""
}

// readReplies delivers this replica's reply stream until Stop.
func (d *Dispatcher) readReplies() {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 10*time.Millisecond, time.Second
	for d.ctx.Err() == nil {
		replies, err := d.cell.Replies(d.ctx, d.cfg.Replica, d.read.load(), replyBlock, replyPage)
		if err != nil {
			if d.ctx.Err() != nil {
				return
			}
			d.log.Warn("replies.read_failed", zap.Error(err))
			select {
			case <-time.After(wait.NextBackOff()):
			case <-d.ctx.Done():
			}
			continue
		}
		wait.Reset()
		for i := range replies {
			d.deliver(&replies[i])
		}
		if n := len(replies); n > 0 {
			d.read.id.Store(&replies[n-1].ID)
		}
	}
}

func (d *Dispatcher) deliver(r *cell.Reply) {
	if node, known := d.cache.Node(r.Status.Node); known {
		node.SetUsed(r.Used)
	}
	w, ok := d.outstanding.Load(r.Status.ID)
	switch {
	case !ok: // forgotten, or a second reply; the record has it
	case r.Detached:
		if w.detached(r.Status.ID) {
			d.drop(r.Status.ID, w)
		}
	case r.Partial:
		// Read apart from this loop, which all other results pass.
		d.fetches <- struct{}{}
		d.loops.Add(1)
		go func() {
			defer func() { <-d.fetches; d.loops.Done() }()
			d.recheck([]string{r.Status.ID})
		}()
	default:
		d.answer(w, r.Status)
	}
}

func (d *Dispatcher) answer(w *waiter, s freeslot.JobStatus) {
	if w.result(s) {
		d.drop(s.ID, w)
	}
}

// keepReplies keeps the reply stream alive and trimmed, and reads the records of
// jobs that have been outstanding for long: a reply is a hint and can be lost.
func (d *Dispatcher) keepReplies() {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-ticker.C:
		}
		d.watchMemory()
		if d.keep() {
			d.recheckOlder(0)
		} else {
			d.recheckOlder(d.cfg.RecheckInterval)
		}
	}
}

// keep returns true when the stream had to be opened anew: replies may be lost.
func (d *Dispatcher) keep() bool {
	ctx, cancel := context.WithTimeout(d.ctx, ioTimeout)
	defer cancel()
	err := d.cell.KeepReplies(ctx, d.cfg.Replica, d.read.load())
	if errors.Is(err, cell.ErrRepliesGone) {
		d.log.Warn("replies.reopened")
		err = d.cell.OpenReplies(ctx, d.cfg.Replica)
		if err == nil {
			return true
		}
	}
	if err != nil && d.ctx.Err() == nil {
		d.log.Warn("replies.keep_failed", zap.Error(err))
	}
	return false
}

// due is an outstanding job whose record has not been read since at.
type due struct {
	id string
	w  *waiter
	at int64
}

// recheckOlder reads the records of jobs not looked at for age, the longest first:
// one page at most, or all of them when age is 0.
func (d *Dispatcher) recheckOlder(age time.Duration) {
	jobs := d.dueFor(age)
	if age > 0 && len(jobs) > cell.MaxPage {
		jobs = jobs[:cell.MaxPage]
	}
	for len(jobs) > 0 && d.ctx.Err() == nil {
		n := min(len(jobs), d.page)
		ids := make([]string, n)
		for i, j := range jobs[:n] {
			ids[i] = j.id
			j.w.mu.Lock()
			j.w.checkedAt = d.cache.Now()
			j.w.mu.Unlock()
		}
		if !d.recheck(ids) {
			// Redis is away, or the results are too large to be read at once. The others
			// have their turn next time, these after them.
			d.page = max(d.page/2, 1)
			return
		}
		d.page = min(d.page*2, cell.MaxPage)
		jobs = jobs[n:]
	}
}

func (d *Dispatcher) dueFor(age time.Duration) []due {
	now := d.cache.Now()
	var jobs []due
	d.outstanding.Range(func(id string, w *waiter) bool {
		w.mu.Lock()
		waits, at := w.open && w.sink != nil, w.checkedAt
		w.mu.Unlock()
		if waits && now-at >= int64(age)+rand.Int64N(int64(age)/4+1) {
			jobs = append(jobs, due{id: id, w: w, at: at})
		}
		return true
	})
	slices.SortFunc(jobs, func(a, b due) int { return cmp.Compare(a.at, b.at) })
	return jobs
}

// recheck delivers what the records say. A record that is gone although somebody
// waits was lost with Redis' data: its waiter is told, rather than left waiting. It
// returns false when the records could not be read.
func (d *Dispatcher) recheck(ids []string) bool {
	ctx, cancel := context.WithTimeout(d.ctx, ioTimeout)
	defer cancel()
	jobs, err := d.cell.JobsByID(ctx, ids)
	if err != nil {
		if d.ctx.Err() == nil {
			d.log.Warn("outstanding.recheck_failed", zap.Int("jobs", len(ids)), zap.Error(err))
		}
		return false
	}
	found := make(map[string]bool, len(jobs))
	for i := range jobs {
		found[jobs[i].ID] = true
		if jobs[i].State.Terminal() && !d.recover(ctx, jobs[i]) {
			return false
		}
	}
	for _, id := range ids {
		if !found[id] {
			d.recovered(freeslot.JobStatus{
				ID: id, State: freeslot.StateFailed,
				Error: &freeslot.JobError{Code: freeslot.JobErrorLost, Message: "the job's record is gone"},
			})
		}
	}
	return true
}

// recover delivers what was found by its head alone. Results are read one by one,
// so that large ones do not hold up everything else on the connection.
func (d *Dispatcher) recover(ctx context.Context, head freeslot.JobStatus) bool {
	if head.State == freeslot.StateSucceeded {
		whole, err := d.cell.Job(ctx, "", head.ID)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			return true // as long ago as results are kept: the next recheck says so
		}
		if err != nil {
			d.log.Warn("outstanding.recheck_failed", zap.String("job", head.ID), zap.Error(err))
			return false
		}
		head = whole
	}
	d.recovered(head)
	return true
}

func (d *Dispatcher) recovered(s freeslot.JobStatus) {
	if w, ok := d.outstanding.Load(s.ID); ok {
		d.answer(w, s)
	}
}
