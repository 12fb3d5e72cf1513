package gateway

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
)

// session is one agent's connection.
type session struct {
	handler *Handler
	id      string
	// secret finds the token's line again, which may have changed since the hello. token is the
	// line at the hello.
	secret  string
	token   Token
	owner   *owner // of the token
	conn    *socket.Conn
	address string
	// certificate has the names in the agent's certificate; nil without one.
	certificate []string
	opened      time.Time

	// greeted returns the place among the pending connections, and late ends a session without a
	// hello. The fields that follow come from the hello, and do not change after it.
	greeted              func()
	late                 *time.Timer
	cell                 Cell
	hub                  *hub
	ends                 ends
	node, epoch, version string
	connection           int64
	admitted             bool // guarded by the handler's mu
	// foreign is true if the node lives in this epoch under another token. Requests that only the
	// epoch fences are then refused.
	foreign atomic.Bool

	// checked is the line that allows the node's profile; nil if none was compared with it yet.
	checked atomic.Pointer[Token]

	// proved is true if a register or heartbeat was accepted, or Redis did not answer it, since
	// keepAlive looked last. idle counts the looks since then; the handler's mu guards it.
	proved atomic.Bool
	idle   int

	roundTrip atomic.Int64 // nanoseconds; the time of the last answered ping

	// life is cancelled when the session ends.
	life    context.Context
	endLife context.CancelFunc
	// writer waits for the writer, requests for the requests under way.
	writer, requests sync.WaitGroup
	// done is closed when everything is over.
	done chan struct{}
	// share is the part of a ping round to which the session belongs. pinging is true until the
	// agent has answered.
	share   int
	pinging atomic.Bool

	mu sync.Mutex // guards the fields that follow; taken before conn's
	// freed is signalled for the reader when a heartbeat ends.
	freed sync.Cond
	// requesting counts the requests under way except heartbeats, and beats the heartbeats. bytes
	// is what all of them hold.
	requesting, beats, bytes int
	// turns holds the heartbeat under way, and the ones that wait for it.
	turns []*beat
	// beating is true if a heartbeat was answered. The last answered one is beat, at beatAtMS by
	// Redis' clock.
	beating  bool
	beat     *frame.Answer
	beatAtMS int64
	// held holds deliveries that wait for the first answered heartbeat, and later for the line.
	// owed is true if a sync follows that heartbeat.
	held []cell.Dispatch
	owed bool
}

func newSession(h *Handler, conn *socket.Conn) *session {
	s := &session{
		handler: h, conn: conn, opened: time.Now(),
		done: make(chan struct{}), share: rand.N(pingShares),
	}
	s.life, s.endLife = context.WithCancel(h.calls)
	s.freed.L = &s.mu
	s.late = time.AfterFunc(helloTimeout, func() {
		s.sendError(
			0, &freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: "no hello within " + helloTimeout.String()},
		)
		s.End(*defectOrder("no hello in time"))
	})
	return s
}

// run serves the session until it ends.
func (s *session) run() {
	s.writer.Go(func() { s.conn.Write(arrayBytes, func(socket.Sent) { s.deliverHeld() }) })
	s.End(s.readLoop())
	s.requests.Wait()
	s.ends.gather.rest()
	s.writer.Wait()
	s.conn.Close()
	s.late.Stop()
	s.report()
	s.handler.unregister(s)
	close(s.done)
}

func (s *session) report() {
	by := s.conn.Ended()
	s.handler.metrics.closed.WithLabelValues(by.Label).Inc()
	s.handler.log.Info("gateway.closed", append(s.fields(),
		zap.String(logging.FieldReason, by.Label),
		zap.Int("code", int(by.Code)),
		zap.Duration("duration", time.Since(s.opened)),
	)...)
}

func (s *session) fields() []zap.Field {
	return []zap.Field{
		zap.String(logging.FieldSession, s.id),
		zap.String(logging.FieldNode, s.node),
		zap.String("token", s.token.Name),
		zap.String(logging.FieldAddress, s.address),
	}
}

// link returns how the node is connected.
func (s *session) link() cell.Link {
	return cell.Link{
		Connection: s.connection, Stream: s.handler.cfg.Replica, Session: s.id, Token: s.token.Name,
		Replica: s.handler.cfg.Replica, Version: s.version, RoundTrip: time.Duration(s.roundTrip.Load()),
	}
}

// send queues a message. It never blocks.
func (s *session) send(answer *frame.Answer) {
	text, ok := s.encode(answer)
	if !ok {
		return
	}
	if len(answer.Begun) > 0 {
		if len(text) <= bareBytes && s.conn.PutBelow(text, bareBytes) {
			return
		}
		for i := range answer.Begun {
			answer.Begun[i].Job = nil
		}
		if text, ok = s.encode(answer); !ok {
			return
		}
	}
	if !s.conn.PutBelow(text, queueBytes) {
		s.endSlow()
	}
}

// sendSome queues a message unless much already waits. Then it returns false.
func (s *session) sendSome(answer *frame.Answer) bool {
	text, ok := s.encode(answer)
	return !ok || s.conn.PutBelow(text, jobBytes)
}

// encode returns false if it cannot encode the answer, and sends an error if a request waits for
// it. This happens for a job whose payload is not JSON, when the agent asks for its spec.
func (s *session) encode(answer *frame.Answer) ([]byte, bool) {
	text, err := frame.Append(nil, answer)
	if err != nil {
		s.handler.log.Error(
			"gateway.not_encoded", append(s.fields(), zap.String("type", string(answer.Type)), zap.Error(err))...,
		)
		if answer.ID > 0 {
			s.sendError(
				answer.ID, &freeslot.Error{Code: freeslot.CodeInternal, Message: "internal error, see the replica's log"},
			)
		}
	}
	return text, err == nil
}

func (s *session) sendError(id uint64, err *freeslot.Error) {
	s.send(&frame.Answer{
		Type: frame.TypeError, ID: id, Code: err.Code, Message: err.Message, Field: err.Field,
		RetryAfterMS: err.RetryAfter.Milliseconds(),
	})
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

func defectOrder(text string) *socket.Order {
	return &socket.Order{Code: frame.CloseDefect, Text: text, Label: closedDefect, Flush: true}
}

func rightsOrder(text string) *socket.Order {
	return &socket.Order{Code: frame.CloseRights, Text: text, Label: closedRights, Flush: true}
}

func awayOrder(text string) *socket.Order {
	return &socket.Order{Code: websocket.StatusTryAgainLater, Text: text, Flush: true}
}
