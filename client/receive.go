package client

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// errBroken is the error of calls whose connection broke. Submits must not be repeated after it;
// other calls are.
var errBroken = &freeslot.Error{
	Code:    freeslot.CodeUnavailable,
	Message: "the connection broke before the replica answered, the request may have been carried out",
}

// receive handles one message. It ignores answers that come after their callers have given up, and
// kinds of messages that only newer replicas send.
func (conn *connection) receive(m *wire.Message) {
	c := conn.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Type {
	case wire.TypeAccepted:
		conn.accepted(m)
	case wire.TypeAssigned:
		if h := c.jobs[m.JobID]; h != nil {
			h.assign(m.Node, m.Attempt)
		}
	case wire.TypeProgress:
		if h := c.jobs[m.JobID]; h != nil {
			h.job.Report(&m.Progress)
		}
	case wire.TypeResult:
		if h := c.jobs[m.Job.ID]; h != nil {
			h.finish(m.Job, nil)
		}
	case wire.TypeStatus:
		conn.status(m)
	case wire.TypeError:
		conn.failed(m)
	case wire.TypeDetached:
		// The job went to another client, unless this client took it to another connection.
		if h := c.jobs[m.JobID]; h != nil && h.conn == conn {
			c.detached(h)
		}
	case wire.TypeGoaway:
		if !conn.leaving {
			conn.leaving = true
			c.unuse(conn)
			close(conn.goaway)
		}
	case wire.TypeWelcome, wire.TypePong:
	}
}

func (conn *connection) accepted(m *wire.Message) {
	k := conn.pending[m.ID]
	index := max(m.Index, 0)
	if k == nil || !k.open(index) {
		return
	}
	h := conn.client.jobs[m.JobID]
	if h != nil { // nil if the idempotency key belongs to a job of this client
		if !conn.leaving { // otherwise the result comes over the connection that takes the job over
			h.conn = conn
		}
		k.spans[index].end(m.JobID, freeslot.JobStatus{}, nil)
	} else {
		h = newHandle(conn, m.JobID, m.Position, k.spans[index])
		conn.client.jobs[m.JobID] = h
	}
	h.key = k.names[index]
	if k.answer(index, Submitted{Handle: h}) {
		conn.answered(m.ID, k)
	}
}

func (conn *connection) failed(m *wire.Message) {
	k := conn.pending[m.ID]
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
		conn.answered(m.ID, k)
	case k.answer(m.Index, Submitted{Err: err}):
		conn.answered(m.ID, k)
	}
}

// status takes the answer to a cancel or an attach. It makes an attach's handle at once, because
// the next message can be the job's result.
func (conn *connection) status(m *wire.Message) {
	k := conn.pending[m.ID]
	if k == nil || k.submitted != nil {
		return
	}
	k.status = m.Job
	k.missing = 0
	if k.attach {
		conn.attached(k, m.Job)
	}
	conn.answered(m.ID, k)
}

func (conn *connection) attached(k *call, s freeslot.JobStatus) {
	c := conn.client
	switch h := c.jobs[s.ID]; {
	case k.handle != nil: // taken over
	case h != nil:
		k.handle = h
		h.conn = conn
	default:
		k.handle = newHandle(conn, s.ID, s.Position, jobSpan{})
		if !s.State.Terminal() {
			c.jobs[s.ID] = k.handle
		}
	}
	k.handle.job.Report(s.Progress)
	switch {
	case s.State.Terminal():
		k.handle.finish(s, nil)
	case s.State == freeslot.StateRunning || s.State == freeslot.StateCancelling:
		// The status of a waiting job names the node on which it ran last, if it ever did.
		k.handle.assign(s.Node, s.Attempt)
	}
}

// answered ends a call once nothing is missing. The caller holds mu.
func (conn *connection) answered(id string, k *call) {
	delete(conn.pending, id)
	close(k.done)
	if conn.leaving {
		// A job may have come with it, or this was the last answer of the connection.
		conn.client.signalOrphans()
	}
}

// failPending fails the calls under way. The caller holds mu.
func (conn *connection) failPending(err error, broken bool) {
	for id, k := range conn.pending {
		if k.broken = broken; broken {
			conn.client.lose(k)
		}
		k.fail(err)
		conn.answered(id, k)
	}
}
