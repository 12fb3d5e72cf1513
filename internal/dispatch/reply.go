package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
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

// readReplies delivers the reply stream until Stop.
func (l *link) readReplies() {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 10*time.Millisecond, time.Second
	for l.d.ctx.Err() == nil {
		replies, err := l.replies()
		if err != nil {
			if l.d.ctx.Err() != nil {
				return
			}
			l.reading.Failed(err)
			select {
			case <-time.After(wait.NextBackOff()):
			case <-l.d.ctx.Done():
			}
			continue
		}
		wait.Reset()
		l.reading.Over()
		for i := range replies {
			l.deliver(&replies[i])
		}
		if n := len(replies); n > 0 {
			l.read.id.Store(&replies[n-1].ID)
		}
	}
}

// replies waits for the next ones, until stopReading.
func (l *link) replies() ([]cell.Reply, error) {
	ctx, cancel := context.WithCancel(l.d.ctx)
	defer cancel()
	l.reader.Store(&cancel)
	return l.cell.Replies(ctx, l.d.cfg.Replica, l.read.load(), l.d.cfg.ReplyBlock, replyPage)
}

// stopReading has the read under way begin anew, if there is one: its server does not answer others, and
// when another has taken its place nobody would tell.
func (l *link) stopReading() {
	if cancel := l.reader.Load(); cancel != nil {
		(*cancel)()
	}
}

func (l *link) deliver(r *cell.Reply) {
	here := r.Status.ID
	home := l.home(r)
	if r.Progress != nil {
		if w, ok := home.outstanding.Load(r.Status.ID); ok {
			w.progress(r.Status.ID, r.Progress)
		}
		return
	}
	l.correct(r)
	if r.Requeued {
		l.look()
		return
	}
	w, ok := home.outstanding.Load(r.Status.ID)
	switch {
	case !ok: // forgotten, or a second reply; the record has it
	case r.Assigned:
		w.assigned(assignmentOf(&r.Status))
	case r.Detached:
		if attaches, ask := w.contested(); ask {
			id := r.Status.ID
			l.fetch(func() {
				if l.lost(here) && w.detached(id, attaches) {
					home.drop(id, w)
				}
			})
		}
	case r.Partial || w.misses(r.Status.Attempt):
		home.fetch(func() { home.recheck([]string{r.Status.ID}) })
	default:
		home.answer(w, r.Status)
	}
}

// fetch has f, which reads records, run apart from the loop that all other replies pass.
func (l *link) fetch(f func()) {
	l.fetches <- struct{}{}
	l.d.loops.Add(1)
	go func() {
		defer func() { <-l.fetches; l.d.loops.Done() }()
		f()
	}()
}

// lost reports whether the result of a job, by its id in this cell, goes to another replica, which has attached to it. The
// news of that can be older than an attach of ours: a client that comes back to a replica which stood still, or was
// started anew, is faster than the stream. Where the record cannot be read both wait, and a recheck tells us the result as well.
func (l *link) lost(jobID string) bool {
	ctx, cancel := context.WithTimeout(l.d.ctx, ioTimeout)
	defer cancel()
	owner, err := l.cell.ReplyTo(ctx, jobID)
	for i := 0; i < len(l.d.links) && owner == "" && err == nil; i++ { // it may have moved on since
		owner, err = l.d.links[i].cell.ReplyTo(ctx, cell.MovedID(jobID, i))
	}
	if err != nil && l.d.ctx.Err() == nil {
		l.often.Warn("detached.check_failed", zap.String("job", jobID), zap.Error(err))
	}
	return err == nil && owner != "" && owner != l.d.cfg.Replica
}

// correct takes over what the reply says of its node. How many slots are in use there
// it says of attempts that began or that the node ended: others ended without the node.
func (l *link) correct(r *cell.Reply) {
	node, known := l.d.nodes.Node(r.Status.Node)
	if !known || !r.Assigned && r.Status.State != freeslot.StateSucceeded && r.Status.State != freeslot.StateFailed {
		return
	}
	node.SetUsed(r.Used)
	if r.Used < node.Max() {
		l.d.freed(node)
	}
}

func assignmentOf(s *freeslot.JobStatus) Assignment {
	return Assignment{JobID: s.ID, Node: s.Node, Attempt: s.Attempt, AssignedAtMS: s.AssignedAtMS}
}

func (l *link) answer(w *waiter, s freeslot.JobStatus) {
	if w.result(s) {
		l.drop(s.ID, w)
	}
}
