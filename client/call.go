package client

import (
	"context"
	"fmt"
	"strconv"

	"github.com/freeslot/freeslot"
)

// Submitted is the outcome of one job of a batch: exactly one field is set.
type Submitted struct {
	Handle *Handle
	Err    error
}

// call is one request that waits for its answers. client.mu guards it until done is closed or the
// caller gives it up.
type call struct {
	// missing counts the answers still to come.
	missing int
	done    chan struct{}
	// broken is true if the connection broke before all answers had come.
	broken bool

	// submitted and spans have one entry for each job of a submit.
	submitted []Submitted
	spans     []jobSpan
	// attach is true if the answer belongs to handle, or makes a new handle if handle is nil.
	attach bool
	handle *Handle
	// names has the name of each job that this request would take to its connection: a key name for
	// each job of a submit, empty without an idempotency key, or the job id of an attach.
	names []string
	// status and err are the answer to cancel and attach.
	status freeslot.JobStatus
	err    error
}

func newCancel() *call { return &call{missing: 1, done: make(chan struct{})} }

func newSubmit(spans []jobSpan, jobs ...freeslot.Job) *call {
	k := &call{missing: len(spans), done: make(chan struct{}), submitted: make([]Submitted, len(spans)), spans: spans}
	for i := range jobs {
		k.names = append(k.names, keyName(jobs[i].IdempotencyKey))
	}
	return k
}

// newAttach makes the call that takes over the job of an existing handle, or makes a new handle if
// h is nil.
func newAttach(job string, h *Handle) *call {
	return &call{missing: 1, done: make(chan struct{}), attach: true, handle: h, names: []string{job}}
}

// answer takes the answer to one job of a submit, and reports whether it was the last one. It
// ignores an index that the call does not have, or that was answered before.
func (k *call) answer(index int, s Submitted) (last bool) {
	if !k.open(index) {
		return false
	}
	k.submitted[index] = s
	k.missing--
	return k.missing == 0
}

func (k *call) open(index int) bool {
	return index >= 0 && index < len(k.submitted) && k.submitted[index] == Submitted{}
}

// fail ends every part of the call that has no answer yet.
func (k *call) fail(err error) {
	for i := range k.submitted {
		k.answer(i, Submitted{Err: err})
	}
	k.err = err
	k.missing = 0
}

// do sends a request and waits for its answers. If no connection took the request, do tries the
// next one; a request that was sent is never repeated. The result is complete: every part without
// an answer has an error.
func (c *Client) do(ctx context.Context, newCall func() *call, encode func(id string) []byte) *call {
	for {
		k := newCall()
		if ctx.Err() != nil {
			k.fail(gaveUp(ctx, "nothing was sent"))
			return k
		}
		var conn *connection
		var id string
		if err := c.connected(ctx, func(current *connection) { conn, id = current, current.begin(k) }); err != nil {
			k.fail(err)
			return k
		}
		if c.exchange(ctx, conn, id, k, encode(id)) {
			return k
		}
	}
}

// exchange is one try of do. It returns false if nothing was sent and the connection is gone.
func (c *Client) exchange(ctx context.Context, conn *connection, id string, k *call, frame []byte) bool {
	select {
	case conn.out <- frame:
	case <-conn.ended:
		return false
	case <-ctx.Done():
		c.giveUp(ctx, conn, id, k, "nothing was sent")
		return true
	}
	select {
	case <-k.done:
	case <-ctx.Done():
		c.giveUp(ctx, conn, id, k, "the request may have been carried out")
	}
	return true
}

// giveUp fails every part without an answer, because ctx has ended.
func (c *Client) giveUp(ctx context.Context, conn *connection, id string, k *call, consequence string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.missing == 0 {
		return
	}
	delete(conn.pending, id)
	k.fail(gaveUp(ctx, consequence))
}

func gaveUp(ctx context.Context, consequence string) error {
	return fmt.Errorf("%w: %w", &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "gave up waiting for the replica, " + consequence,
	}, context.Cause(ctx))
}

// connected waits for a connection that takes requests, and calls use with it while holding mu.
func (c *Client) connected(ctx context.Context, use func(*connection)) error {
	for {
		c.mu.Lock()
		current, ready, closed := c.current, c.ready, c.closed
		if current != nil && !closed {
			use(current)
		}
		c.mu.Unlock()
		switch {
		case closed:
			return ErrClosed
		case current != nil:
			return nil
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return c.notConnected(ctx)
		}
	}
}

func (c *Client) notConnected(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	message := "no connection to a replica, nothing was sent"
	if c.failure != nil {
		message += " (" + c.failure.Error() + ")"
	}
	return fmt.Errorf("%w: %w", &freeslot.Error{Code: freeslot.CodeUnavailable, Message: message}, context.Cause(ctx))
}

// begin makes k a call of this connection and returns its id. The caller holds client.mu.
func (conn *connection) begin(k *call) (id string) {
	conn.client.lastID++
	id = strconv.FormatUint(conn.client.lastID, 36)
	conn.pending[id] = k
	return id
}
