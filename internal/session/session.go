package session

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// session is one client's connection. It is the sink of its jobs.
type session struct {
	handler   *Handler
	id        string
	principal identity.Principal
	address   string // of the client, for the audit
	conn      *socket.Conn
	batch     bool
	opened    time.Time

	grace *time.Timer // ends a drained session

	// life is the context of the session's attaches, including those that submits make for their
	// keys. endLife ends it when the client must go elsewhere.
	life    context.Context
	endLife context.CancelFunc
	// tasks waits for the writer and the keep-alive, requests for the goroutines that the reader
	// started.
	tasks, requests sync.WaitGroup
	// quit ends the keep-alive. done is closed when everything is over.
	quit, done chan struct{}

	// turns holds a token for each request that asks for a status.
	turns chan struct{}
	// replying is held by the request whose answer waits for room. It is taken before mu.
	replying sync.Mutex

	mu sync.Mutex // guards the fields that follow; taken before out's
	// freed is signalled for the reader when a request ends.
	freed sync.Cond
	// jobs holds the jobs without a result, by keyOf. The value is nil unless an attach is under
	// way.
	jobs     map[string]*attachment
	reserved int // jobs whose submit is under way
	// underWay, underWayBytes and underWayJobs count requests, the bytes of their frames and the
	// jobs that they submit.
	underWay, underWayBytes, underWayJobs int
	// draining is true if no new jobs begin, leaving while grace runs. why is the reason.
	draining, leaving bool
	why               string
}

func newSession(h *Handler, id string, p identity.Principal, conn *socket.Conn, batch bool) *session {
	s := &session{
		handler: h, id: id, principal: p, conn: conn, batch: batch, opened: time.Now(),
		turns: make(chan struct{}, maxTurns),
		jobs:  map[string]*attachment{}, quit: make(chan struct{}), done: make(chan struct{}),
	}
	s.life, s.endLife = context.WithCancel(h.calls)
	s.freed.L = &s.mu
	s.grace = socket.StoppedTimer(s.endDrained)
	s.send(func(dst []byte) []byte {
		return wire.AppendWelcome(dst, &wire.Welcome{
			Protocol: wire.Protocol, SessionID: id, Replica: h.cfg.Replica, Version: h.cfg.Version,
			MaxPayloadBytes: h.cfg.MaxPayloadBytes, MaxBatch: h.cfg.MaxBatch, MaxFrameBytes: h.cfg.MaxFrameBytes,
		})
	})
	return s
}

// run serves the session until it ends.
func (s *session) run() {
	s.tasks.Go(s.writeLoop)
	s.tasks.Go(s.keepAlive)
	s.End(s.readLoop())
	s.requests.Wait()
	s.handler.dispatcher.Forget(s) // after the last submit
	close(s.quit)
	s.tasks.Wait()
	s.conn.Close()
	s.grace.Stop()
	s.report()
	s.handler.sessions.Remove(s)
	close(s.done)
}

func (s *session) report() {
	s.mu.Lock()
	left := len(s.jobs)
	s.mu.Unlock()
	by := s.conn.Ended()
	s.handler.metrics.closed.WithLabelValues(by.Label).Inc()
	s.handler.log.Info("session.closed",
		zap.String(logging.FieldSession, s.id),
		zap.String(logging.FieldTenant, s.principal.Tenant),
		zap.String(logging.FieldReason, by.Label),
		zap.Int("code", int(by.Code)),
		zap.Int("jobs_left", left),
		zap.Duration("duration", time.Since(s.opened)),
	)
}

// send queues a message. It never blocks.
func (s *session) send(encode func(dst []byte) []byte) {
	if !s.conn.Put(encode) {
		s.endSlow()
	}
}

func (s *session) sendError(id string, index int, jobID string, err *freeslot.Error) {
	s.send(func(dst []byte) []byte { return wire.AppendError(dst, id, index, jobID, err) })
}

// End gives the order to end the session, unless one was given before. It never blocks, and may be
// called with mu held.
func (s *session) End(by socket.Order) {
	if s.conn.End(by) {
		s.endLife()
	}
}

func (s *session) endSlow() { s.End(s.handler.socket.Slow) }

// Cut implements socket.Session.
func (s *session) Cut() { s.conn.Cut() }

// Done implements socket.Session.
func (s *session) Done() <-chan struct{} { return s.done }

// writeLoop sends queued messages, and at the end carries out the order.
func (s *session) writeLoop() {
	arrays := 0
	if s.batch {
		arrays = arrayBytes
	}
	m := s.handler.metrics
	s.conn.Write(arrays, func(sent socket.Sent) {
		m.messagesOut.Add(float64(sent.Messages))
		m.progressSent.Add(float64(sent.Latest))
	})
}

// drain asks the client to go away. It ends the session once the session has no jobs left and the
// client has had time to leave by itself.
func (s *session) drain(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	s.draining, s.why = true, why
	// The client goes elsewhere and attaches there. A later attach of this session would take the
	// job from it.
	s.endLife()
	s.send(func(dst []byte) []byte { return wire.AppendGoaway(dst, why) })
	s.closeIfIdle()
}

// endDrained ends a drained session that the client has not left.
func (s *session) endDrained() {
	by := socket.Stopping(closedDrained)
	s.mu.Lock()
	by.Text = s.why
	s.mu.Unlock()
	s.End(by)
}

// closeIfIdle ends an idle session that drains. Call it, with mu held, whenever jobs, reserved or
// underWay have shrunk. Its condition stays true: a draining session takes no jobs.
func (s *session) closeIfIdle() {
	if s.draining && !s.leaving && len(s.jobs) == 0 && s.reserved == 0 && s.underWay == 0 {
		s.leaving = true
		s.grace.Reset(s.handler.cfg.DrainGrace)
	}
}
