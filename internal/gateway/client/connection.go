package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/slot"
)

const (
	// readLimit is the largest frame from a gateway.
	readLimit = 8 << 20
	// arrayBytes is about the largest frame of several messages. A heartbeat may have to wait for
	// one frame.
	arrayBytes = 16 << 10
	// reportBytes bounds the complete requests under way: others share the line with them.
	reportBytes = 256 << 10
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
	// goodbyeTimeout bounds the close handshake.
	goodbyeTimeout = time.Second
	// sparePlaces is the number of a session's requests that are kept for other types than complete
	// and spec.
	sparePlaces = 8
	// maxSpecs bounds the spec requests under way: the gateway ends a session that has more than 4
	// MiB to read. See also pace.
	maxSpecs = 32
	// minBeatTimeout is the smallest result of part.
	minBeatTimeout = 100 * time.Millisecond
)

// errConnectionLost is returned by roundTrip when the connection has ended before the answer.
var errConnectionLost = errors.New("the connection to the gateway was lost")

// connection is one connection to one gateway, from its welcome on. start makes its two
// goroutines: the reader gives answers to their calls, and the writer sends what is queued and
// closes the socket. Its queue is bounded by the calls under way, and by reportBytes.
type connection struct {
	store   *Store
	socket  *websocket.Conn
	url     *url.URL
	token   string
	number  int64
	welcome frame.Welcome

	// ctx ends the reads and writes, and with them the connection; cut holds the reason.
	ctx context.Context
	cut context.CancelCauseFunc
	// places bounds the complete and spec requests under way, so that there is room for others.
	places  chan struct{}
	specs   *slot.Slots   // spec requests under way
	room    *slot.Slots   // bytes of complete requests under way, at most reportBytes
	filled  chan struct{} // holds a token if out has grown
	goaway  chan struct{} // holds a token once the gateway asks the node to leave
	doubted chan struct{} // holds a token once doubt was set
	leaving chan struct{} // closed to say goodbye
	leave   func()        // closes leaving
	// ended is closed when nothing more comes; err then holds the reason, nil if the node has left.
	ended  chan struct{}
	err    error
	lastID atomic.Uint64 // id of the last request

	// store.mu guards the fields that follow.

	pending map[uint64]*pendingCall
	out     []*pendingCall // requests that are not written yet
	lost    bool           // nothing more is sent
	beaten  bool           // a heartbeat has been answered
	refusal error
	// doubt tells why the last heartbeat was not carried out; nil if it was. late sets it if no
	// heartbeat is answered in time; late is nil while none is under way.
	doubt error
	late  *time.Timer
	calm  time.Duration // the shortest pause before another gateway is tried
	// specsAtOnce is the number of spec requests that may be under way.
	specsAtOnce int
	// least is the shortest time that an answer has taken, including the welcome; at most part.
	least time.Duration
}

// pendingCall is a request under way. The writer closes written. The reader, or lose, sets the rest
// and then closes done.
type pendingCall struct {
	conn    *connection
	id      uint64
	beat    bool // true for a heartbeat
	began   time.Time
	message []byte
	written chan struct{}
	done    chan struct{}
	// answer is void if lost.
	answer frame.Answer
	// arrived is the number of deliveries that had been queued when the answer came.
	arrived uint64
	lost    bool
}

// newConnection makes a connection for a socket whose welcome took that long.
func newConnection(
	s *Store, socket *websocket.Conn, to *url.URL, token string, welcome *frame.Welcome, took time.Duration,
) *connection {
	leaving := make(chan struct{})
	c := &connection{
		store: s, socket: socket, url: to, token: token, number: s.dials, welcome: *welcome,
		places: make(chan struct{}, max(welcome.MaxRequests-sparePlaces, 1)),
		specs:  slot.New(1), specsAtOnce: 1, room: slot.New(reportBytes),
		filled: make(chan struct{}, 1), goaway: make(chan struct{}, 1), doubted: make(chan struct{}, 1),
		ended:   make(chan struct{}),
		leaving: leaving, leave: sync.OnceFunc(func() { close(leaving) }), pending: map[uint64]*pendingCall{},
	}
	c.least = min(took, c.part())
	c.ctx, c.cut = context.WithCancelCause(context.Background())
	socket.SetReadLimit(readLimit)
	return c
}

// limit returns the gateway's heartbeat limit.
func (c *connection) limit() time.Duration {
	return time.Duration(c.welcome.HeartbeatLimitMS) * time.Millisecond
}

func (c *connection) start() {
	c.store.loops.Go(c.writeLoop)
	c.store.loops.Go(func() {
		err := c.readLoop()
		if cause := context.Cause(c.ctx); cause != nil && websocket.CloseStatus(err) == -1 {
			err = cause
		}
		c.end(err)
	})
}

// end ends the connection. The reader calls it, once.
func (c *connection) end(err error) {
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

// lose ends the calls under way without an answer. The caller holds store.mu.
func (c *connection) lose() {
	c.lost, c.out = true, nil
	c.endAwaitBeat()
	for id, call := range c.pending {
		delete(c.pending, id)
		call.lost = true
		close(call.done)
	}
}

// roundTrip sends a request and waits for its answer. On a slow line requests wait long before they
// are sent. So a complete has CallTimeout from the time at which it was written, and a spec has
// SpecTimeout from the time at which it may be sent. Errors:
//
// - ErrNotSent if ctx ended before the request was sent;
// - errConnectionLost, or ctx's error, if the request may have been carried out;
// - otherwise the errors of answerError.
func (c *connection) roundTrip(ctx context.Context, req *frame.Request) (*pendingCall, error) {
	if req.Type == frame.TypeSpec {
		if err := c.makeRoom(ctx, c.specs, 1); err != nil {
			return nil, err
		}
		defer c.specs.Release(1)
		begin := time.Now()
		defer func() { c.pace(time.Since(begin)) }()
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.store.cfg.SpecTimeout)
		defer cancel()
	}
	if req.Type == frame.TypeComplete || req.Type == frame.TypeSpec {
		if err := c.enter(ctx, c.places); err != nil {
			return nil, err
		}
		defer func() { <-c.places }()
	}
	if req.Type == frame.TypeComplete {
		bytes := len(req.Result)
		if req.Error != nil {
			bytes += len(req.Error.Message)
		}
		if err := c.makeRoom(ctx, c.room, bytes); err != nil {
			return nil, err
		}
		defer c.room.Release(bytes)
	}
	call, err := c.send(req)
	if err != nil {
		return nil, err
	}
	if req.Type == frame.TypeComplete {
		select {
		case <-call.written:
		case <-call.done:
		case <-ctx.Done():
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.store.cfg.CallTimeout)
		defer cancel()
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		c.forget(call) // a later answer is void
		return nil, fmt.Errorf("no answer to %s: %w", req.Type, ctx.Err())
	}
	if call.lost {
		return nil, errConnectionLost
	}
	return call, answerError(&call.answer)
}

// enter waits for a place and takes it.
func (c *connection) enter(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-c.ended:
		return errConnectionLost
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", cell.ErrNotSent, ctx.Err())
	}
}

// makeRoom waits until this much room is left, and takes it.
func (c *connection) makeRoom(ctx context.Context, room *slot.Slots, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	if err := room.Acquire(ctx, n); err != nil {
		return fmt.Errorf("%w: %w", cell.ErrNotSent, err)
	}
	return nil
}

// pace lowers the number of specs under way when one took long, and raises it when one did not.
// Heartbeats wait behind them, and on a slow line too many specs would all come too late, again and
// again. On a far line each answer takes long, so only the time beyond the least counts.
func (c *connection) pace(took time.Duration) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if took-c.least > (c.part()-c.least)/4 {
		c.specsAtOnce = max(c.specsAtOnce/2, 1)
	} else {
		c.specsAtOnce = min(c.specsAtOnce+1, maxSpecs)
	}
	c.specs.Resize(c.specsAtOnce)
}

// send queues a request. Heartbeats come first.
func (c *connection) send(req *frame.Request) (*pendingCall, error) {
	numbered := *req // a former connection may still have the request
	numbered.ID = c.lastID.Add(1)
	message, err := frame.Append(nil, &numbered)
	if err != nil {
		return nil, freeslot.Invalid(string(req.Type), "cannot be encoded: %v", err)
	}
	call := &pendingCall{
		conn: c, id: numbered.ID, beat: req.Type == frame.TypeHeartbeat, began: time.Now(), message: message,
		written: make(chan struct{}), done: make(chan struct{}),
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.lost {
		return nil, errConnectionLost
	}
	c.pending[call.id] = call
	if call.beat {
		c.awaitBeat()
		c.out = slices.Insert(c.out, 0, call)
	} else {
		c.out = append(c.out, call)
	}
	notify(c.filled)
	return call, nil
}

// forget gives a call up: it is no longer sent.
func (c *connection) forget(call *pendingCall) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	delete(c.pending, call.id)
	c.out = slices.DeleteFunc(c.out, func(queued *pendingCall) bool { return queued == call })
}

// answerError returns the error of an answer. It is a *freeslot.Error only if the gateway has not
// carried the request out.
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
// out that a gateway is gone.
func (c *connection) readLoop() error {
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

// receive carries out one message. It ignores unknown types, which are for later releases.
func (c *connection) receive(a *frame.Answer) error {
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
	case a.Type == frame.TypeError: // the gateway then closes the connection
		c.refusal = &freeslot.Error{Code: a.Code, Message: a.Message, Field: a.Field}
	case s.current != c: // a gateway pushes nothing before it has answered a heartbeat
	case a.Type == frame.TypeJobs:
		s.push(cellDispatches(a.Jobs)...)
	case a.Type == frame.TypeCancel:
		for _, id := range a.Attempts {
			s.push(cell.Dispatch{Attempt: cell.Attempt(id), Cancel: true})
		}
	case a.Type == frame.TypeSync:
		s.cfg.Beat()
	}
	return nil
}

// answer ends the call with this id. An answer to a call that was given up is void.
func (c *connection) answer(a *frame.Answer) {
	call := c.pending[a.ID]
	if call == nil {
		return
	}
	delete(c.pending, a.ID)
	c.least = min(c.least, time.Since(call.began))
	if call.beat {
		c.heard(a)
	}
	c.beaten = c.beaten || a.Type == frame.TypeBeat
	call.answer, call.arrived = *a, c.store.arrived
	close(call.done)
}

// writeLoop sends what is queued, several messages as one array, and finally says goodbye.
func (c *connection) writeLoop() {
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

func (c *connection) flush() error {
	for calls := c.take(); len(calls) > 0; calls = c.take() {
		messages := make([][]byte, len(calls))
		for i, call := range calls {
			messages[i] = call.message
		}
		array := messages[0]
		if len(messages) > 1 {
			array = append(append([]byte{'['}, bytes.Join(messages, []byte{','})...), ']')
		}
		ctx, cancel := context.WithTimeout(c.ctx, writeTimeout)
		err := c.socket.Write(ctx, websocket.MessageText, array)
		cancel()
		if err != nil {
			return err
		}
		for _, call := range calls {
			close(call.written)
		}
	}
	return nil
}

// take takes the calls of the next frame out of the queue.
func (c *connection) take() []*pendingCall {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	n, size := 0, 0
	for n < len(c.out) && (n == 0 || size+len(c.out[n].message) < arrayBytes) {
		size += len(c.out[n].message)
		n++
	}
	calls := slices.Clone(c.out[:n])
	c.out = slices.Delete(c.out, 0, n)
	return calls
}
