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
	if node, known := l.d.nodes.Node(r.Status.Node); known {
		node.SetUsed(r.Used)
	}
	w, ok := l.outstanding.Load(r.Status.ID)
	switch {
	case !ok: // forgotten, or a second reply; the record has it
	case r.Detached:
		if w.detached(r.Status.ID) {
			l.drop(r.Status.ID, w)
		}
	case r.Partial:
		// Read apart from this loop, which all other results pass.
		l.fetches <- struct{}{}
		l.d.loops.Add(1)
		go func() {
			defer func() { <-l.fetches; l.d.loops.Done() }()
			l.recheck([]string{r.Status.ID})
		}()
	default:
		l.answer(w, r.Status)
	}
}

func (l *link) answer(w *waiter, s freeslot.JobStatus) {
	if w.result(s) {
		l.drop(s.ID, w)
	}
}
