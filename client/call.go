package client

import (
	"context"
	"fmt"
	"strconv"

	"github.com/freeslot/freeslot"
)

// Submitted is what became of one job of a batch: exactly one field is set.
type Submitted struct {
	Handle *Handle
	Err    error
}

// call is one request that waits for its answers. client.mu guards it until done
// is closed or it was given up.
type call struct {
	// missing counts the answers that are still to come.
	missing int
	done    chan struct{}
	// broken: the connection broke before all answers had come.
	broken bool

	// submitted and spans are those of a submit, one for each job.
	submitted []Submitted
	spans     []jobSpan
	// attach: the answer makes, or is for, a handle.
	attach bool
	handle *Handle
	// status and err are the answer to cancel and attach.
	status freeslot.JobStatus
	err    error
}

func newCancel() *call { return &call{missing: 1, done: make(chan struct{})} }

func newSubmit(spans []jobSpan) *call {
	return &call{missing: len(spans), done: make(chan struct{}), submitted: make([]Submitted, len(spans)), spans: spans}
}

// newAttach makes the call that takes over the job of an existing handle, or of
// a new one.
func newAttach(h *Handle) *call {
	return &call{missing: 1, done: make(chan struct{}), attach: true, handle: h}
}

// accepted and refused take the answer to one job of a submit; an index that is
// not the call's, or was answered before, is ignored. They report whether it was
// the last.
func (k *call) accepted(index int, h *Handle) (last bool) {
	if !k.open(index) {
		return false
	}
	k.submitted[index].Handle = h
	k.missing--
	return k.missing == 0
}

func (k *call) refused(index int, err error) (last bool) {
	if !k.open(index) {
		return false
	}
	k.submitted[index].Err = err
	k.missing--
	return k.missing == 0
}

func (k *call) open(index int) bool {
	return index >= 0 && index < len(k.submitted) && k.submitted[index].Handle == nil && k.submitted[index].Err == nil
}

// fail ends all of the call that has no answer yet.
func (k *call) fail(err error) {
	for i := range k.submitted {
		k.refused(i, err)
	}
	k.err = err
	k.missing = 0
}

// do sends a request and waits for its answers. A request that could not be
// handed to a connection is tried on the next one; one that was is never
// repeated. What it returns is complete: what has no answer has an error.
func (c *Client) do(ctx context.Context, newCall func() *call, encode func(id string) []byte) *call {
	for {
		k := newCall()
		if ctx.Err() != nil {
			k.fail(gaveUp(ctx, "nothing was sent"))
			return k
		}
		l, id, err := c.begin(ctx, k)
		if err != nil {
			k.fail(err)
			return k
		}
		if c.exchange(ctx, l, id, k, encode(id)) {
			return k
		}
	}
}

// exchange is one try of do. It returns false when nothing was sent and the
// connection is gone.
func (c *Client) exchange(ctx context.Context, l *link, id string, k *call, frame []byte) bool {
	select {
	case l.out <- frame:
	case <-l.ended:
		return false
	case <-ctx.Done():
		c.giveUp(ctx, l, id, k, "nothing was sent")
		return true
	}
	select {
	case <-k.done:
	case <-ctx.Done():
		c.giveUp(ctx, l, id, k, "the request may have been carried out")
	}
	return true
}

// giveUp fails what has no answer because ctx has ended.
func (c *Client) giveUp(ctx context.Context, l *link, id string, k *call, consequence string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.missing == 0 {
		return
	}
	delete(l.pending, id)
	k.fail(gaveUp(ctx, consequence))
}

func gaveUp(ctx context.Context, consequence string) error {
	return fmt.Errorf("%w: %w", &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "gave up waiting for the replica, " + consequence,
	}, context.Cause(ctx))
}

// begin waits for a connection and makes k one of its calls.
func (c *Client) begin(ctx context.Context, k *call) (*link, string, error) {
	for {
		c.mu.Lock()
		switch l := c.current; {
		case c.closed:
			c.mu.Unlock()
			return nil, "", ErrClosed
		case l != nil:
			id := c.newID()
			l.pending[id] = k
			c.mu.Unlock()
			return l, id, nil
		}
		ready := c.ready
		c.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, "", c.notConnected(ctx)
		}
	}
}

// newID must be called with mu held.
func (c *Client) newID() string {
	c.lastID++
	return strconv.FormatUint(c.lastID, 36)
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
