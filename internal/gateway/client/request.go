package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/slot"
)

// errConnectionLost is returned by roundTrip when the connection has ended before the answer.
var errConnectionLost = errors.New("the connection to the gateway was lost")

// pendingCall is a request under way. store.mu guards due. The other fields that change are set
// before done is closed.
type pendingCall struct {
	conn    *connection
	id      uint64
	kind    frame.Type
	began   time.Time
	message []byte
	// due is the time at which a complete is given up; zero until it was sent, and for other types.
	due  time.Time
	done chan struct{}
	// err tells why there is no answer; nil if there is one.
	err    error
	answer frame.Answer
	// arrived is the number of deliveries that had been queued when the answer came.
	arrived uint64
}

// roundTrip sends a request and waits for its answer. On a slow line requests wait long before they
// are sent. So a complete has CallTimeout from the time at which it was sent, and a spec has
// SpecTimeout from the time at which it may be sent. Errors:
//
// - ErrNotSent if ctx ended before the request was sent;
// - errConnectionLost, or the error of a context, if the request may have been carried out;
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
	select {
	case <-call.done:
	case <-ctx.Done():
		c.forget(call) // a later answer is void
		return nil, noAnswer(req.Type, ctx.Err())
	}
	if call.err != nil {
		return nil, call.err
	}
	return call, answerError(&call.answer)
}

func noAnswer(to frame.Type, why error) error { return fmt.Errorf("no answer to %s: %w", to, why) }

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
	if room.TryAcquire(n) {
		return nil
	}
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
		conn: c, id: numbered.ID, kind: req.Type, began: time.Now(), message: message, done: make(chan struct{}),
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.lost {
		return nil, errConnectionLost
	}
	c.pending[call.id] = call
	if call.kind == frame.TypeHeartbeat {
		c.awaitBeat()
		c.out = slices.Insert(c.out, 0, call)
	} else {
		c.out = append(c.out, call)
	}
	notify(c.filled)
	return call, nil
}

// finish ends a call; err is nil if it has its answer. The caller holds store.mu.
func (c *connection) finish(call *pendingCall, err error) {
	delete(c.pending, call.id)
	call.err = err
	close(call.done)
}

// forget gives a call up: it is no longer sent.
func (c *connection) forget(call *pendingCall) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	delete(c.pending, call.id)
	c.out = slices.DeleteFunc(c.out, func(queued *pendingCall) bool { return queued == call })
}

// sent begins the time of the completes of a frame. One timer serves all of the connection.
func (c *connection) sent(calls []*pendingCall) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	due := time.Now().Add(c.store.cfg.CallTimeout)
	for _, call := range calls {
		if call.kind != frame.TypeComplete {
			continue
		}
		call.due = due
		if !c.timed && !c.lost {
			c.timed = true
			c.overdue.Reset(c.store.cfg.CallTimeout)
		}
	}
}

// giveUp ends the completes whose answers are overdue, and waits for the next.
func (c *connection) giveUp() {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	now, next := time.Now(), time.Duration(0)
	for _, call := range c.pending {
		left := call.due.Sub(now)
		switch {
		case call.due.IsZero():
		case left <= 0:
			c.finish(call, noAnswer(call.kind, context.DeadlineExceeded))
		case next == 0 || left < next:
			next = left
		}
	}
	if c.timed = next > 0; c.timed {
		c.overdue.Reset(next)
	}
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
