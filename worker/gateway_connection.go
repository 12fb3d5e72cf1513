package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const (
	// gatewayReadLimit is the largest frame from a gateway.
	gatewayReadLimit = 8 << 20
	// arrayBytes is about the largest frame of several messages.
	arrayBytes = 128 << 10
	// gatewayWriteTimeout bounds one write.
	gatewayWriteTimeout = 10 * time.Second
	// goodbyeTimeout bounds the close handshake.
	goodbyeTimeout = time.Second
	// sparePlaces are the requests that a session has for others than complete and spec.
	sparePlaces = 8
	// minBeatTimeout is the least that part returns.
	minBeatTimeout = 100 * time.Millisecond
)

// errConnectionLost is returned by roundTrip when the connection has ended before the answer.
var errConnectionLost = errors.New("the connection to the gateway was lost")

// gatewayConnection is one connection to one gateway, from its welcome on. It has two goroutines,
// which start makes: the reader gives answers to their calls, and the writer sends what is queued and
// closes the socket. Its queue is bounded by the calls that are under way.
type gatewayConnection struct {
	store   *gatewayStore
	socket  *websocket.Conn
	url     *url.URL
	token   string
	number  int64
	welcome frame.Welcome

	// ctx ends the reads and writes, and with them the connection; cut has the reason.
	ctx context.Context
	cut context.CancelCauseFunc
	// places bounds the complete and spec requests under way, so that there is room for others.
	places  chan struct{}
	filled  chan struct{} // has a token when out has grown
	goaway  chan struct{} // has a token once the gateway asks the node to leave
	doubted chan struct{} // has a token once doubt was set
	leaving chan struct{} // closed to say goodbye
	leave   func()        // closes leaving
	// ended is closed when nothing more comes; err then says why, nil if the node has left.
	ended  chan struct{}
	err    error
	lastID atomic.Uint64 // of requests

	// store.mu guards what follows.

	pending map[uint64]*gatewayCall
	out     [][]byte
	lost    bool // nothing is sent any more
	beaten  bool // a heartbeat has been answered
	refusal error
	// doubt is why the last heartbeat was not carried out, nil if it was. late sets it if no heartbeat
	// is answered in time; it is nil while none is under way.
	doubt error
	late  *time.Timer
	calm  time.Duration // the least pause before another gateway is tried
}

// gatewayCall is a request under way. The reader, or lose, sets the rest and then closes done.
type gatewayCall struct {
	conn *gatewayConnection
	beat bool // a heartbeat
	done chan struct{}
	// answer is void if lost.
	answer frame.Answer
	// arrived is how many deliveries had been queued when the answer came.
	arrived uint64
	lost    bool
}

func newGatewayConnection(s *gatewayStore, socket *websocket.Conn, to *url.URL, token string, welcome *frame.Welcome) *gatewayConnection {
	leaving := make(chan struct{})
	c := &gatewayConnection{
		store: s, socket: socket, url: to, token: token, number: s.dials, welcome: *welcome,
		places: make(chan struct{}, max(welcome.MaxRequests-sparePlaces, 1)),
		filled: make(chan struct{}, 1), goaway: make(chan struct{}, 1), doubted: make(chan struct{}, 1), ended: make(chan struct{}),
		leaving: leaving, leave: sync.OnceFunc(func() { close(leaving) }), pending: map[uint64]*gatewayCall{},
	}
	c.ctx, c.cut = context.WithCancelCause(context.Background())
	socket.SetReadLimit(gatewayReadLimit)
	return c
}

// limit is the gateway's heartbeat limit.
func (c *gatewayConnection) limit() time.Duration {
	return time.Duration(c.welcome.HeartbeatLimitMS) * time.Millisecond
}

func (c *gatewayConnection) start() {
	c.store.loops.Go(c.writeLoop)
	c.store.loops.Go(func() {
		err := c.readLoop()
		if cause := context.Cause(c.ctx); cause != nil && websocket.CloseStatus(err) == -1 {
			err = cause
		}
		c.end(err)
	})
}

// end is called once, by the reader.
func (c *gatewayConnection) end(err error) {
	s := c.store
	s.mu.Lock()
	select {
	case <-c.leaving:
	default:
		c.err = err
		if c.refusal != nil {
			c.err = fmt.Errorf("%w: %w", c.refusal, err)
		}
	}
	s.mu.Unlock()
	s.drop(c, websocket.CloseStatus(err) == frame.CloseSuperseded)
	close(c.ended)
	_ = c.socket.CloseNow()
	c.cut(nil)
}

// lose ends the calls under way without an answer. store.mu is held.
func (c *gatewayConnection) lose() {
	c.lost = true
	c.endAwaitBeat()
	for id, call := range c.pending {
		delete(c.pending, id)
		call.lost = true
		close(call.done)
	}
}

// roundTrip sends a request and waits for its answer. Errors: ErrNotSent when it was not sent before
// ctx ended; errConnectionLost, and that of ctx, when it may have been carried out; else those of
// answerError.
func (c *gatewayConnection) roundTrip(ctx context.Context, req *frame.Request) (*gatewayCall, error) {
	if req.Type == frame.TypeComplete || req.Type == frame.TypeSpec {
		select {
		case c.places <- struct{}{}:
			defer func() { <-c.places }()
		case <-c.ended:
			return nil, errConnectionLost
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", cell.ErrNotSent, ctx.Err())
		}
	}
	call, id, err := c.send(req)
	if err != nil {
		return nil, err
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		c.forget(id) // an answer that comes later is void
		return nil, fmt.Errorf("no answer to %s: %w", req.Type, ctx.Err())
	}
	if call.lost {
		return nil, errConnectionLost
	}
	return call, answerError(&call.answer)
}

func (c *gatewayConnection) send(req *frame.Request) (*gatewayCall, uint64, error) {
	numbered := *req // a former connection may still have the request
	numbered.ID = c.lastID.Add(1)
	message, err := frame.Append(nil, &numbered)
	if err != nil {
		return nil, 0, freeslot.Invalid(string(req.Type), "cannot be encoded: %v", err)
	}
	call := &gatewayCall{conn: c, beat: req.Type == frame.TypeHeartbeat, done: make(chan struct{})}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.lost {
		return nil, 0, errConnectionLost
	}
	if call.beat {
		c.awaitBeat()
	}
	c.pending[numbered.ID] = call
	c.out = append(c.out, message)
	notify(c.filled)
	return call, numbered.ID, nil
}

func (c *gatewayConnection) forget(id uint64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	delete(c.pending, id)
}

// answerError is the error of an answer. Only what the gateway has not carried out is a
// *freeslot.Error.
func answerError(a *frame.Answer) error {
	if a.Type != frame.TypeError {
		return nil
	}
	switch a.Code {
	case frame.CodeSuperseded:
		return cell.ErrSuperseded
	case frame.CodeUnknownNode:
		return cell.ErrUnknownNode
	case freeslot.CodeUnavailable, freeslot.CodeInternal, frame.CodeStaleConnection:
		return fmt.Errorf("the gateway answered %s: %s", a.Code, a.Message)
	default:
		return &freeslot.Error{
			Code: a.Code, Message: a.Message, Field: a.Field, RetryAfter: time.Duration(a.RetryAfterMS) * time.Millisecond,
		}
	}
}

// readLoop takes messages until the connection ends. It reads without a deadline: heartbeats find
// that a gateway is gone.
func (c *gatewayConnection) readLoop() error {
	for {
		_, message, err := c.socket.Read(c.ctx)
		if err != nil {
			return err
		}
		if err := frame.DecodeAnswers(message, c.receive); err != nil {
			return err
		}
	}
}

// receive carries out one message. Those of unknown types are for later releases.
func (c *gatewayConnection) receive(a *frame.Answer) error {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != c && s.candidate != c {
		return nil
	}
	switch {
	case a.ID != 0:
		if s.candidate == c && s.fatal == nil && reachesRedis(a) {
			s.candidate = nil
			s.switchTo(c)
		}
		c.answer(a)
	case a.Type == frame.TypeGoaway:
		notify(c.goaway)
	case a.Type == frame.TypeError: // the gateway closes the connection
		c.refusal = &freeslot.Error{Code: a.Code, Message: a.Message, Field: a.Field}
	case s.current != c: // a gateway pushes nothing before it has answered a heartbeat
	case a.Type == frame.TypeJobs:
		s.push(cellDispatches(a.Jobs)...)
	case a.Type == frame.TypeCancel:
		for _, id := range a.Attempts {
			s.push(cell.Dispatch{Attempt: cell.Attempt(id), Cancel: true})
		}
	case a.Type == frame.TypeSync:
		s.beat()
	}
	return nil
}

// answer ends the call with this id. An answer to a call that was given up is void.
func (c *gatewayConnection) answer(a *frame.Answer) {
	call := c.pending[a.ID]
	if call == nil {
		return
	}
	delete(c.pending, a.ID)
	if call.beat {
		c.heard(a)
	}
	c.beaten = c.beaten || a.Type == frame.TypeBeat
	call.answer, call.arrived = *a, c.store.arrived
	close(call.done)
}

// writeLoop sends what is queued, several messages as one array, and says goodbye.
func (c *gatewayConnection) writeLoop() {
	for {
		select {
		case <-c.filled:
			if err := c.flush(); err != nil {
				c.cut(cmp.Or(context.Cause(c.ctx), err))
				return
			}
		case <-c.leaving:
			late := time.AfterFunc(goodbyeTimeout, func() { c.cut(nil) })
			_ = c.socket.Close(websocket.StatusNormalClosure, "")
			late.Stop()
			c.cut(nil)
			return
		case <-c.ended:
			return
		}
	}
}

func (c *gatewayConnection) flush() error {
	c.store.mu.Lock()
	messages := c.out
	c.out = nil
	c.store.mu.Unlock()
	for len(messages) > 0 {
		n, size := 1, len(messages[0])
		for n < len(messages) && size+len(messages[n]) < arrayBytes {
			size += len(messages[n])
			n++
		}
		array := messages[0]
		if n > 1 {
			array = append(append([]byte{'['}, bytes.Join(messages[:n], []byte{','})...), ']')
		}
		messages = messages[n:]
		ctx, cancel := context.WithTimeout(c.ctx, gatewayWriteTimeout)
		err := c.socket.Write(ctx, websocket.MessageText, array)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
