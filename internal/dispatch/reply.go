package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

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

// readReplies delivers the reply stream until Stop.
func (l *link) readReplies() {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 10*time.Millisecond, time.Second
	for l.d.ctx.Err() == nil {
		replies, err := l.cell.Replies(l.d.ctx, l.d.cfg.Replica, l.read.load(), replyBlock, replyPage)
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

func (l *link) deliver(r *cell.Reply) {
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
		if w.detached(r.Status.ID) {
			home.drop(r.Status.ID, w)
		}
	case r.Partial || w.misses(r.Status.Attempt):
		// Read apart from this loop, which all other results pass.
		home.fetches <- struct{}{}
		l.d.loops.Add(1)
		go func() {
			defer func() { <-home.fetches; l.d.loops.Done() }()
			home.recheck([]string{r.Status.ID})
		}()
	default:
		home.answer(w, r.Status)
	}
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
