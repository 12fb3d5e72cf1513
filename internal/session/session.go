package session

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
)

// session is one client's connection. It is the sink of its jobs.
type session struct {
	handler   *Handler
	id        string
	principal principal
	conn      *websocket.Conn
	// net is what conn runs on, to cut it.
	net    net.Conn
	batch  bool
	opened time.Time

	out outbox
	// received counts bytes, for the keep-alive; paused and writing tell it why
	// there may be none.
	received        atomic.Int64
	paused, writing atomic.Bool
	frame           []byte // the reader's buffer

	// grace ends a drained session, limit one that takes too long to end. Both
	// are there from the start, not running, so that end needs no lock.
	grace, limit *time.Timer

	// life is the context of the session's attaches, those of its submits' keys too; over ends it when the client is
	// to go elsewhere.
	life context.Context
	over context.CancelFunc
	// tasks are the writer and the keep-alive, requests what the reader began.
	tasks, requests sync.WaitGroup
	// quit ends the keep-alive; done is closed when all is over.
	quit, done chan struct{}

	// asking holds a token for each request that asks for a status; replying is held
	// by the one whose answer waits for room. It is taken before mu.
	asking   chan struct{}
	replying sync.Mutex

	mu sync.Mutex // guards what follows; taken before out's
	// freed is signalled for the reader when a request ends.
	freed sync.Cond
	// jobs are those that have no result yet, by keyOf, with nil unless an attach is under
	// way. reserved counts those whose submit is under way.
	jobs     map[string]*attachment
	reserved int
	// underWay, underWayBytes and underWayJobs count requests, the bytes of their
	// frames and the jobs that they submit.
	underWay, underWayBytes, underWayJobs int
	// draining: no new jobs. leaving: grace runs.
	draining, leaving bool
}

func newSession(h *Handler, id string, p principal, conn *websocket.Conn, nc net.Conn, batch bool) *session {
	s := &session{
		handler: h, id: id, principal: p, conn: conn, net: nc, batch: batch, opened: time.Now(),
		asking: make(chan struct{}, maxAsking),
		jobs:   map[string]*attachment{}, quit: make(chan struct{}), done: make(chan struct{}),
	}
	s.life, s.over = context.WithCancel(h.calls)
	s.freed.L = &s.mu
	s.out.init(h.cfg.QueueMessages, h.cfg.QueueBytes)
	s.limit = stoppedTimer(s.cut)
	s.grace = stoppedTimer(func() {
		s.end(order{code: websocket.StatusGoingAway, text: "the replica is stopping", label: closedDrained, flush: true})
	})
	// readFrame bounds frames itself: it can say so before it hangs up.
	conn.SetReadLimit(-1)
	s.send(func(dst []byte) []byte {
		return wire.AppendWelcome(dst, &wire.Welcome{
			Protocol: wire.Protocol, SessionID: id, Replica: h.cfg.Replica, Version: h.cfg.Version,
			MaxPayloadBytes: h.cfg.MaxPayloadBytes, MaxBatch: h.cfg.MaxBatch, MaxFrameBytes: h.cfg.MaxFrameBytes,
		})
	})
	return s
}

func stoppedTimer(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

// run serves the session to its end.
func (s *session) run() {
	s.tasks.Go(s.writeLoop)
	s.tasks.Go(s.keepAlive)
	s.end(s.readLoop())
	// Only now can no submit add to the sink any more.
	s.requests.Wait()
	s.handler.dispatcher.Forget(s)
	close(s.quit)
	s.tasks.Wait()
	_ = s.conn.CloseNow()
	s.limit.Stop()
	s.grace.Stop()
	s.report()
	s.handler.unregister(s)
	close(s.done)
}

func (s *session) report() {
	s.mu.Lock()
	left := len(s.jobs)
	s.mu.Unlock()
	by := s.out.ended()
	s.handler.metrics.closed.WithLabelValues(by.label).Inc()
	s.handler.log.Info("session.closed",
		zap.String(logging.FieldSession, s.id),
		zap.String(logging.FieldTenant, s.principal.tenant),
		zap.String(logging.FieldReason, by.label),
		zap.Int("code", int(by.code)),
		zap.Int("jobs_left", left),
		zap.Duration("duration", time.Since(s.opened)),
	)
}

// send queues a message. It never blocks.
func (s *session) send(encode func(dst []byte) []byte) {
	if !s.out.put(encode) {
		s.endSlow()
	}
}

func (s *session) sendError(id string, index int, jobID string, err *freeslot.Error) {
	s.send(func(dst []byte) []byte { return wire.AppendError(dst, id, index, jobID, err) })
}

// end gives the order to end the session, unless one was given before. It never
// blocks, and may be called with mu held.
func (s *session) end(by order) {
	if s.out.end(by) {
		s.over()
		s.limit.Reset(s.handler.cfg.CloseTimeout)
	}
}

func (s *session) endSlow() {
	s.end(order{code: wire.CloseSlowClient, text: "the client does not read fast enough", label: closedSlow})
}

// cut ends the connection by force; all else follows from that.
func (s *session) cut() { _ = s.net.Close() }

// drain tells the client to go away, and ends the session once it has no jobs
// left and the client had time to go by itself.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	s.draining = true
	// The client goes elsewhere and attaches there: one of here that came later would take the job from it.
	s.over()
	s.send(func(dst []byte) []byte { return wire.AppendGoaway(dst, "the replica is stopping") })
	s.leaveIfIdle()
}

// leaveIfIdle must be called, with mu held, whenever jobs, reserved or underWay
// have shrunk. Once true its condition stays so: a draining session takes no jobs.
func (s *session) leaveIfIdle() {
	if s.draining && !s.leaving && len(s.jobs) == 0 && s.reserved == 0 && s.underWay == 0 {
		s.leaving = true
		s.grace.Reset(s.handler.cfg.DrainGrace)
	}
}
