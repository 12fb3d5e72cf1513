package dispatch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	replyPage = 512
	// fetchLimit bounds the reads of one cell's records at the same time that its replies cause.
	fetchLimit = 16
	// askLimit bounds the questions to all cells at the same time that the replies of one cell
	// cause.
	askLimit = 16
)

// replyReader is the loop that reads the reply stream of one cell and delivers its replies.
type replyReader struct {
	*cellClient
	outage *logging.Outage
	// lastRead is the id of the last reply that was delivered. The keeper trims up to it.
	lastRead atomic.Pointer[string]
	reading  atomic.Pointer[context.CancelFunc] // ends the read that is under way
	// fetches bounds the reads of this cell's records that replies cause. asks bounds the questions
	// to all cells. They are separate, so that a cell that is away does not delay this one.
	fetches, asks chan struct{}
}

func newReplyReader(c *cellClient) *replyReader {
	l := &replyReader{
		cellClient: c, outage: logging.NewOutage(c.log, "replies.read_failed", "replies.read_again"),
		fetches: make(chan struct{}, fetchLimit), asks: make(chan struct{}, askLimit),
	}
	l.lastRead.Store(new(string))
	return l
}

func (l *replyReader) run() {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 10*time.Millisecond, time.Second
	for l.d.ctx.Err() == nil {
		if l.runOnce() {
			pause.Reset()
		} else {
			sleep(l.d.ctx, pause.NextBackOff())
		}
	}
}

// runOnce waits for the next replies and delivers them. It returns false if they could not be read.
func (l *replyReader) runOnce() bool {
	replies, err := l.replies()
	if !l.succeeded(l.outage, err) {
		return false
	}
	for i := range replies {
		l.deliver(&replies[i])
	}
	if n := len(replies); n > 0 {
		last := replies[n-1].ID // a copy: a pointer into replies would keep their results
		l.lastRead.Store(&last)
	}
	return true
}

// replies waits for the next replies, until stopReading.
func (l *replyReader) replies() ([]cell.Reply, error) {
	ctx, cancel := context.WithCancel(l.d.ctx)
	defer cancel()
	l.reading.Store(&cancel)
	return l.cell.Replies(ctx, l.d.cfg.Replica, *l.lastRead.Load(), l.d.cfg.ReplyBlock, replyPage)
}

// stopReading restarts the read under way. Its server does not answer other calls, and the read
// itself would not notice that another server has taken over.
func (l *replyReader) stopReading() {
	if cancel := l.reading.Load(); cancel != nil {
		(*cancel)()
	}
}

func (l *replyReader) deliver(r *cell.Reply) {
	here := r.Status.ID
	home := l.awaitedAt(r)
	id := r.Status.ID
	w, ok := home.outstanding.Load(id)
	if r.Progress != nil {
		if ok {
			w.progress(id, r.Progress)
		}
		return
	}
	l.correctNode(r)
	switch {
	case r.Requeued:
		l.wakeSweep()
	case !ok: // forgotten, or a second reply; the record has it
	case r.Assigned:
		l.d.metrics.begun(w)
		w.assigned(assignmentOf(&r.Status))
	case r.Detached:
		if attaches, ask := w.contested(); ask {
			l.askOwner(here, func(replica string) {
				if replica != l.d.cfg.Replica && w.detached(id, attaches) {
					home.drop(id, w)
				}
			})
		}
	case r.Partial || w.misses(r.Status.Attempt):
		l.fetch(func() { l.readEnd(here, id, home) })
	default:
		home.answer(w, r.Status)
	}
}

// fetch runs f, which reads only records of this cell, beside the loop that delivers all other
// replies. While fetchLimit of them run, the loop waits; but it waits only for the server that it
// reads from.
func (l *replyReader) fetch(f func()) {
	l.fetches <- struct{}{}
	l.d.loops.Go(func() {
		defer func() { <-l.fetches }()
		f()
	})
}

// ask is fetch for an f that asks other cells, too. While askLimit of them run, f is dropped: the
// loop must not wait for cells that are away.
func (l *replyReader) ask(f func()) {
	select {
	case l.asks <- struct{}{}:
		l.d.loops.Go(func() {
			defer func() { <-l.asks }()
			f()
		})
	default:
	}
}

// readEnd delivers an end that the reply reports only in part, from the record in this cell. The
// job is outstanding at home, under id. That cell, which the job has left, may be away. If the
// record cannot be read, the next recheck delivers the end.
func (l *replyReader) readEnd(here, id string, home *cellClient) {
	ctx, cancel := l.d.timeout()
	defer cancel()
	s, err := l.cell.Job(ctx, "", here)
	switch {
	case err == nil && s.State.Terminal():
		s.ID = id
		home.deliverEnd(s)
		return
	case err != nil && freeslot.CodeOf(err) != freeslot.CodeNotFound:
		l.warn("outstanding.recheck_failed", err, zap.String("job", id))
	}
	home.recheckSoon(id) // gone, or undone by a failover
}

// askOwner calls f with the replica that gets the result of a job, by its id in this cell. News
// that another replica has attached can be older than our own attach: a client that returns after a
// standstill or a restart of this replica is faster than the stream. If the owner is unknown, or
// too many questions are under way, f is not called. Both replicas then keep waiting, and a recheck
// brings the result here as well.
func (l *replyReader) askOwner(jobID string, f func(replica string)) {
	l.fetch(func() {
		switch replica, err := l.ownerOf(jobID, l.cellClient); {
		case err == nil && replica != "":
			f(replica)
		case err == nil && len(l.d.byCell) > 1: // it may have moved on since
			l.ask(func() {
				if replica, err := l.ownerOf(jobID, l.d.byCell...); err == nil && replica != "" {
					f(replica)
				}
			})
		}
	})
}

// ownerOf returns which replica gets a job's result, according to the first cell that knows; ""
// means none.
func (l *replyReader) ownerOf(jobID string, at ...*cellClient) (replica string, err error) {
	for _, other := range at {
		ctx, cancel := l.d.timeout() // one for each: a cell may be away
		owner, failed := other.cell.ReplyTo(ctx, cell.MovedID(jobID, other.cell.Index()))
		cancel()
		if owner != "" {
			return owner, nil
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		l.warn("detached.check_failed", err, zap.String("job", jobID))
	}
	return "", err
}

// correctNode updates the slots in use of the reply's node. Replies about attempts that began, and
// about ends that the node reported, have this number. Other ends happened without the node.
func (l *replyReader) correctNode(r *cell.Reply) {
	node, known := l.d.nodes.Node(r.Status.Node)
	if !known || !r.Assigned && r.Status.State != freeslot.StateSucceeded && r.Status.State != freeslot.StateFailed {
		return
	}
	node.SetUsed(r.Used)
	if r.Used < node.Max() {
		l.d.nodeFreed(node)
	}
}
