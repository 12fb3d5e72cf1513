package client

import (
	"bytes"
	"cmp"
	"context"
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
	"github.com/freeslot/freeslot/internal/yield"
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
	// takeAtOnce is the largest number of messages that are carried out together: "[{},{},…" takes a
	// hundred times its own size once it is decoded.
	takeAtOnce = 64
	// maxSpecs bounds the spec requests under way: the gateway ends a session that has more than 4
	// MiB to read. See also pace.
	maxSpecs = 32
	// minBeatTimeout is the smallest result of part.
	minBeatTimeout = 100 * time.Millisecond
)

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
	out     []*pendingCall // requests that are not sent yet
	lost    bool           // nothing more is sent
	// overdue calls giveUp. timed is true while it is set: there may be completes that were sent.
	overdue *time.Timer
	timed   bool
	beaten  bool // a heartbeat has been answered
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
	c.overdue = time.AfterFunc(time.Hour, c.giveUp)
	c.overdue.Stop()
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
	c.overdue.Stop()
	for _, call := range c.pending {
		c.finish(call, errConnectionLost)
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
		if err := c.carryOut(message); err != nil {
			return err
		}
	}
}

// carryOut carries out the messages of one frame together, so that the worker learns of all of them at
// once.
func (c *connection) carryOut(message []byte) error {
	var answers []*frame.Answer
	err := frame.DecodeAnswers(message, func(a *frame.Answer) error {
		if answers = append(answers, a); len(answers) == takeAtOnce {
			c.receiveAll(answers)
			answers = answers[:0]
		}
		return nil
	})
	c.receiveAll(answers)
	return err
}

func (c *connection) receiveAll(answers []*frame.Answer) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for _, a := range answers {
		c.receive(a)
	}
}

// receive carries out one message. It ignores unknown types, which are for later releases. The
// caller holds store.mu.
func (c *connection) receive(a *frame.Answer) {
	s := c.store
	if s.current != c && s.candidate != c {
		return
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
}

// answer ends the call with this id. An answer to a call that was given up is void.
func (c *connection) answer(a *frame.Answer) {
	call := c.pending[a.ID]
	if call == nil {
		return
	}
	c.least = min(c.least, time.Since(call.began))
	if call.kind == frame.TypeHeartbeat {
		c.heard(a)
	}
	c.beaten = c.beaten || a.Type == frame.TypeBeat
	call.answer, call.arrived = *a, c.store.arrived
	c.finish(call, nil)
}

// writeLoop sends what is queued, several messages as one array, and finally says goodbye.
func (c *connection) writeLoop() {
	var ready yield.Yielder
	for {
		select {
		case <-c.filled:
			// Jobs that came together end together. Let their ends queue first, so that they share a
			// frame.
			if c.ending() > 0 {
				ready.Yield(c.ending)
			}
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

// ending returns the number of queued messages if an end of a job is next. Heartbeats, which come
// first, wait for no others.
func (c *connection) ending() int {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if len(c.out) == 0 || c.out[0].kind != frame.TypeComplete {
		return 0
	}
	return len(c.out)
}

func (c *connection) flush() error {
	for calls := c.nextFrame(); len(calls) > 0; calls = c.nextFrame() {
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
		c.sent(calls)
	}
	return nil
}

// nextFrame takes the calls of the next frame out of the queue.
func (c *connection) nextFrame() []*pendingCall {
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
