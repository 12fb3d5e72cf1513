package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	replyPage = 512
	// fetchLimit bounds the reads of one cell's records at the same time that its replies cause.
	fetchLimit = 16
	// askLimit bounds the questions to all cells at the same time that the replies of one cell
	// cause.
	askLimit = 16
)

// readReplies is the loop that reads the reply stream and delivers its replies.
func (c *client) readReplies() {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 10*time.Millisecond, time.Second
	for c.d.ctx.Err() == nil {
		replies, err := c.replies()
		if !c.succeeded(c.reading, err) {
			sleep(c.d.ctx, pause.NextBackOff())
			continue
		}
		pause.Reset()
		for i := range replies {
			c.deliver(&replies[i])
		}
		if n := len(replies); n > 0 {
			last := replies[n-1].ID // a copy: a pointer into replies would keep their results
			c.lastRead.Store(&last)
		}
	}
}

// replies waits for the next replies, until stopReading.
func (c *client) replies() ([]cell.Reply, error) {
	ctx, cancel := context.WithCancel(c.d.ctx)
	defer cancel()
	c.reader.Store(&cancel)
	return c.cell.Replies(ctx, c.d.cfg.Replica, *c.lastRead.Load(), c.d.cfg.ReplyBlock, replyPage)
}

// stopReading restarts the read under way. Its server does not answer other calls, and the read
// itself would not notice that another server has taken over.
func (c *client) stopReading() {
	if cancel := c.reader.Load(); cancel != nil {
		(*cancel)()
	}
}

func (c *client) deliver(r *cell.Reply) {
	here := r.Status.ID
	home := c.awaitedAt(r)
	id := r.Status.ID
	w, ok := home.outstanding.Load(id)
	if r.Progress != nil {
		if ok {
			w.progress(id, r.Progress)
		}
		return
	}
	c.correctNode(r)
	switch {
	case r.Requeued:
		c.wakeSweep()
	case !ok: // forgotten, or a second reply; the record has it
	case r.Assigned:
		w.assigned(assignmentOf(&r.Status))
	case r.Detached:
		if attaches, ask := w.contested(); ask {
			c.askOwner(here, func(replica string) {
				if replica != c.d.cfg.Replica && w.detached(id, attaches) {
					home.drop(id, w)
				}
			})
		}
	case r.Partial || w.misses(r.Status.Attempt):
		c.fetch(func() { c.readEnd(here, id, home) })
	default:
		home.answer(w, r.Status)
	}
}

// fetch runs f, which reads only records of this cell, beside the loop that delivers all other
// replies. While fetchLimit of them run, the loop waits; but it waits only for the server that it
// reads from.
func (c *client) fetch(f func()) {
	c.fetches <- struct{}{}
	c.d.loops.Go(func() {
		defer func() { <-c.fetches }()
		f()
	})
}

// ask is fetch for an f that asks other cells, too. While askLimit of them run, f is dropped: the
// loop must not wait for cells that are away.
func (c *client) ask(f func()) {
	select {
	case c.asks <- struct{}{}:
		c.d.loops.Go(func() {
			defer func() { <-c.asks }()
			f()
		})
	default:
	}
}

// readEnd delivers an end that the reply reports only in part, from the record in this cell. The
// job is outstanding at home, under id. That cell, which the job has left, may be away. If the
// record cannot be read, the next recheck delivers the end.
func (c *client) readEnd(here, id string, home *client) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	s, err := c.cell.Job(ctx, "", here)
	switch {
	case err == nil && s.State.Terminal():
		s.ID = id
		home.deliverEnd(s)
		return
	case err != nil && freeslot.CodeOf(err) != freeslot.CodeNotFound:
		c.warn("outstanding.recheck_failed", err, zap.String("job", id))
	}
	home.recheckSoon(id) // gone, or undone by a failover
}

// askOwner calls f with the replica that gets the result of a job, by its id in this cell. News
// that another replica has attached can be older than our own attach: a client that returns after a
// standstill or a restart of this replica is faster than the stream. If the owner is unknown, or
// too many questions are under way, f is not called. Both replicas then keep waiting, and a recheck
// brings the result here as well.
func (c *client) askOwner(jobID string, f func(replica string)) {
	c.fetch(func() {
		switch replica, err := c.ownerOf(jobID, c); {
		case err == nil && replica != "":
			f(replica)
		case err == nil && len(c.d.clients) > 1: // it may have moved on since
			c.ask(func() {
				if replica, err := c.ownerOf(jobID, c.d.clients...); err == nil && replica != "" {
					f(replica)
				}
			})
		}
	})
}

// ownerOf returns which replica gets a job's result, according to the first cell that knows; ""
// means none.
func (c *client) ownerOf(jobID string, at ...*client) (replica string, err error) {
	for _, other := range at {
		ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout) // one for each: a cell may be away
		owner, failed := other.cell.ReplyTo(ctx, cell.MovedID(jobID, other.cell.Index()))
		cancel()
		if owner != "" {
			return owner, nil
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		c.warn("detached.check_failed", err, zap.String("job", jobID))
	}
	return "", err
}

// correctNode updates the slots in use of the reply's node. Replies about attempts that began, and
// about ends that the node reported, have this number. Other ends happened without the node.
func (c *client) correctNode(r *cell.Reply) {
	node, known := c.d.nodes.Node(r.Status.Node)
	if !known || !r.Assigned && r.Status.State != freeslot.StateSucceeded && r.Status.State != freeslot.StateFailed {
		return
	}
	node.SetUsed(r.Used)
	if r.Used < node.Max() {
		c.d.nodeFreed(node)
	}
}

func assignmentOf(s *freeslot.JobStatus) Assignment {
	return Assignment{JobID: s.ID, Node: s.Node, Attempt: s.Attempt, AssignedAtMS: s.AssignedAtMS}
}

// answer gives the result to w, and drops w if it is done.
func (c *client) answer(w *waiter, s freeslot.JobStatus) {
	if w.result(s) {
		c.drop(s.ID, w)
	}
}
