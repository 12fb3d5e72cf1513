package client

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// errBroken is what calls fail with whose connection broke. Submits must not be
// repeated after it; the others are.
var errBroken = &freeslot.Error{
	Code:    freeslot.CodeUnavailable,
	Message: "the connection broke before the replica answered, the request may have been carried out",
}

// take handles one message. What it knows nothing of is ignored: an answer that
// came after its caller had given up, or a kind of message that a newer replica
// sends.
func (l *link) take(m *wire.Message) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Type {
	case wire.TypeAccepted:
		l.accepted(m)
	case wire.TypeAssigned:
		if h := c.jobs[m.JobID]; h != nil {
			h.assign(m.Node, m.Attempt)
		}
	case wire.TypeProgress:
		if h := c.jobs[m.JobID]; h != nil {
			h.tell(&m.Progress)
		}
	case wire.TypeResult:
		if h := c.jobs[m.Job.ID]; h != nil {
			h.finish(m.Job, nil)
		}
	case wire.TypeStatus:
		l.status(m)
	case wire.TypeError:
		l.failed(m)
	case wire.TypeDetached:
		// Not ours any more, unless it was this client that took it to another link.
		if h := c.jobs[m.JobID]; h != nil && h.link == l {
			h.finish(freeslot.JobStatus{}, &freeslot.Error{
				Code: freeslot.CodeUnavailable, Message: "another client attached to the job and gets its result",
			})
		}
	case wire.TypeGoaway:
		if !l.leaving {
			l.leaving = true
			c.unuse(l)
			close(l.goaway)
		}
	case wire.TypeWelcome, wire.TypePong:
	}
}

func (l *link) accepted(m *wire.Message) {
	k := l.pending[m.ID]
	index := max(m.Index, 0)
	if k == nil || !k.open(index) {
		return
	}
	h := l.client.jobs[m.JobID]
	if h != nil { // its idempotency key belongs to a job of this client
		if !l.leaving { // else its result comes over the link that takes it over
			h.link = l
		}
		k.spans[index].end(m.JobID, freeslot.JobStatus{}, nil)
	} else {
		h = newHandle(l.client, m.JobID, m.Position, l, k.spans[index])
		l.client.jobs[m.JobID] = h
	}
	if k.accepted(index, h) {
		l.answered(m.ID, k)
	}
}

func (l *link) failed(m *wire.Message) {
	k := l.pending[m.ID]
	if k == nil {
		return
	}
	var err error = &freeslot.Error{Code: freeslot.CodeInternal, Message: "the replica gave no reason"}
	if m.Error != nil {
		err = m.Error
	}
	switch {
	case k.submitted == nil || m.Index == wire.NoIndex:
		k.fail(err)
		l.answered(m.ID, k)
	case k.refused(m.Index, err):
		l.answered(m.ID, k)
	}
}

// status takes the answer to a cancel or an attach. The handle of an attach must
// be there before the next message, which can be its result.
func (l *link) status(m *wire.Message) {
	k := l.pending[m.ID]
	if k == nil || k.submitted != nil {
		return
	}
	k.status = m.Job
	k.missing = 0
	if k.attach {
		l.attached(k, m.Job)
	}
	l.answered(m.ID, k)
}

func (l *link) attached(k *call, s freeslot.JobStatus) {
	c := l.client
	switch h := c.jobs[s.ID]; {
	case k.handle != nil: // taken over
	case h != nil:
		k.handle = h
		h.link = l
	default:
		k.handle = newHandle(c, s.ID, s.Position, l, jobSpan{})
		if !s.State.Terminal() {
			c.jobs[s.ID] = k.handle
		}
	}
	k.handle.tell(s.Progress)
	switch {
	case s.State.Terminal():
		k.handle.finish(s, nil)
	case s.State == freeslot.StateRunning || s.State == freeslot.StateCancelling:
		// Of a job that waits the status tells where it ran last, if it ever did.
		k.handle.assign(s.Node, s.Attempt)
	}
}

// answered must be called with mu held, once nothing is missing.
func (l *link) answered(id string, k *call) {
	delete(l.pending, id)
	close(k.done)
	if l.leaving {
		// A job may have come with it, or the link be done with.
		l.client.signalOrphans()
	}
}

// failPending must be called with mu held.
func (l *link) failPending(err error, broken bool) {
	for id, k := range l.pending {
		k.broken = broken
		k.fail(err)
		l.answered(id, k)
	}
}
