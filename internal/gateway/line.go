package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
)

const (
	// maxWaiting bounds the handshakes that wait in line, and waitingOfOwner the ones of one owner:
	// a fleet with one token, all of whose agents come back at once.
	maxWaiting     = 4096
	waitingOfOwner = 512
	// longestWait bounds the time in the line. An agent gives its dial and hello a second or more.
	longestWait = time.Second
)

// waiter is a handshake in the line. let receives once: nil for a place, or why there is none.
type waiter struct {
	owner *owner
	let   chan *freeslot.Error
}

// takePending takes one of the places for connections without a hello, which leavePending gives
// back. If there is none, it waits for a while.
func (h *Handler) takePending(ctx context.Context, o *owner) *freeslot.Error {
	h.mu.Lock()
	switch {
	case h.draining:
		h.mu.Unlock()
		return stoppingError()
	case o.waiting == 0 && h.fits(o):
		h.pending++
		o.pending++
		h.mu.Unlock()
		return nil
	case o.waiting >= waitingOfOwner || h.line.Len() >= maxWaiting:
		h.mu.Unlock()
		return crowdedError(o)
	}
	w := &waiter{owner: o, let: make(chan *freeslot.Error, 1)}
	place := h.line.PushBack(w)
	o.waiting++
	h.mu.Unlock()

	timer := time.NewTimer(min(h.cfg.HeartbeatLimit/8, longestWait))
	defer timer.Stop()
	select {
	case err := <-w.let:
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case err := <-w.let:
		return err
	default:
	}
	h.line.Remove(place)
	o.waiting--
	return crowdedError(o)
}

// fits reports whether one more connection of an owner may be without a hello. The caller holds mu.
func (h *Handler) fits(o *owner) bool {
	return h.pending < maxPending && (o.pending < pendingOfOwner || h.pending < maxPending/2)
}

func (h *Handler) leavePending(o *owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending--
	o.pending--
	for e := h.line.Front(); e != nil && h.pending < maxPending; {
		w, next := e.Value.(*waiter), e.Next()
		if h.fits(w.owner) {
			h.line.Remove(e)
			w.owner.waiting--
			w.owner.pending++
			h.pending++
			w.let <- nil
		}
		e = next
	}
}

// closeLine refuses new sessions, and all handshakes in the line. The caller holds mu.
func (h *Handler) closeLine() {
	h.draining = true
	for e := h.line.Front(); e != nil; e = h.line.Front() {
		w := h.line.Remove(e).(*waiter)
		w.owner.waiting--
		w.let <- stoppingError()
	}
}

func crowdedError(o *owner) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: refusedRetryAfter,
		Message: fmt.Sprintf("too many agents are about to connect, %d of them with the token %s", o.pending, o.name),
	}
}
