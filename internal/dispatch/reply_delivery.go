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
)

const (
	replyPage     = 512
	renewInterval = time.Second
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
func (c *client) readReplies() {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 10*time.Millisecond, time.Second
	for c.d.ctx.Err() == nil {
		replies, err := c.replies()
		if err != nil {
			if c.d.ctx.Err() != nil {
				return
			}
			c.reading.Failed(err)
			select {
			case <-time.After(wait.NextBackOff()):
			case <-c.d.ctx.Done():
			}
			continue
		}
		wait.Reset()
		c.reading.Over()
		for i := range replies {
			c.deliver(&replies[i])
		}
		if n := len(replies); n > 0 {
			last := replies[n-1].ID // a copy: a pointer into replies would keep their results
			c.lastRead.id.Store(&last)
		}
	}
}

// replies waits for the next ones, until stopReading.
func (c *client) replies() ([]cell.Reply, error) {
	ctx, cancel := context.WithCancel(c.d.ctx)
	defer cancel()
	c.reader.Store(&cancel)
	return c.cell.Replies(ctx, c.d.cfg.Replica, c.lastRead.load(), c.d.cfg.ReplyBlock, replyPage)
}

// stopReading has the read under way begin anew, if there is one: its server does not answer others, and
// when another has taken its place nobody would tell.
func (c *client) stopReading() {
	if cancel := c.reader.Load(); cancel != nil {
		(*cancel)()
	}
}

func (c *client) deliver(r *cell.Reply) {
	here := r.Status.ID
	home := c.awaitedAt(r)
	if r.Progress != nil {
		if w, ok := home.outstanding.Load(r.Status.ID); ok {
			w.progress(r.Status.ID, r.Progress)
		}
		return
	}
	c.correct(r)
	if r.Requeued {
		c.wakeSweep()
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
			c.askOwner(here, func(replica string) {
				if replica != c.d.cfg.Replica && w.detached(id, attaches) {
					home.drop(id, w)
				}
			})
		}
	case r.Partial || w.misses(r.Status.Attempt):
		id := r.Status.ID
		c.fetch(func() { c.readEnd(here, id, home) })
	default:
		home.answer(w, r.Status)
	}
}

// fetch has f, which reads records of this cell and asks no other one, run apart from the loop that all other replies
// pass. While fetchLimit of them run the loop waits: for nobody but the server that it reads from.
func (c *client) fetch(f func()) {
	c.fetches <- struct{}{}
	c.d.loops.Add(1)
	go func() {
		defer func() { <-c.fetches; c.d.loops.Done() }()
		f()
	}()
}

// ask is fetch for an f that asks other cells too. While askLimit of them run f is dropped: the loop does not wait
// for cells that are away.
func (c *client) ask(f func()) {
	select {
	case c.asks <- struct{}{}:
	default:
		return
	}
	c.d.loops.Add(1)
	go func() {
		defer func() { <-c.asks; c.d.loops.Done() }()
		f()
	}()
}

// readEnd delivers an end of which the reply does not tell all, from the record in this cell. Who waits for it does so at
// home, under id, and the cell of that, in which the job was before, may be away. What cannot be read the next recheck tells.
func (c *client) readEnd(here, id string, home *client) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	s, err := c.cell.Job(ctx, "", here)
	switch {
	case err == nil && s.State.Terminal():
		s.ID = id
		home.deliverEnd(s)
		return
	case err != nil && freeslot.CodeOf(err) != freeslot.CodeNotFound && c.d.ctx.Err() == nil:
		c.sampled.Warn("outstanding.recheck_failed", zap.String("job", id), zap.Error(err))
	}
	home.recheckSoon(id) // gone, or taken back by a failover
}

// owner calls f with the replica that gets the result of a job, by its id in this cell, once it is known. The
// news that another one has attached can be older than an attach of ours: a client that comes back to a replica which stood still,
// or was started anew, is faster than the stream. Where nobody can tell, or too many are asked about, f is not called: then both
// wait, and a recheck tells us the result as well.
func (c *client) askOwner(jobID string, f func(replica string)) {
	c.fetch(func() {
		switch replica, err := c.replyTo([]*client{c}, jobID); {
		case err == nil && replica != "":
			f(replica)
		case err == nil && len(c.d.clients) > 1: // it may have moved on since
			c.ask(func() {
				if replica, err := c.replyTo(c.d.clients, jobID); err == nil && replica != "" {
					f(replica)
				}
			})
		}
	})
}

// replyTo is what the first of some cells says that knows who gets a job's result; "" is none.
func (c *client) replyTo(at []*client, jobID string) (replica string, err error) {
	for i := 0; i < len(at) && replica == ""; i++ {
		ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout) // each its own: one may be away
		var failed error
		replica, failed = at[i].cell.ReplyTo(ctx, cell.MovedID(jobID, at[i].cell.Index()))
		cancel()
		err = errors.Join(err, failed)
	}
	if replica != "" {
		return replica, nil
	}
	if err != nil && c.d.ctx.Err() == nil {
		c.sampled.Warn("detached.check_failed", zap.String("job", jobID), zap.Error(err))
	}
	return replica, err
}

// correct takes over what the reply says of its node. How many slots are in use there
// it says of attempts that began or that the node ended: others ended without the node.
func (c *client) correct(r *cell.Reply) {
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

func (c *client) answer(w *waiter, s freeslot.JobStatus) {
	if w.result(s) {
		c.drop(s.ID, w)
	}
}
