package gateway

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// mostTogether is the largest number of requests in a call. A call looks at no more of the queue
// than that: while Redis stands still the queue grows, and copying all of it for each call would
// take quadratic time.
const mostTogether = 64

// gather lets requests share calls. While a call is under way, the next one collects, and starts
// beside it only when it is full. The goroutine of the first request in the queue makes the call,
// and hands that duty to the first request that stays in the queue or comes later. So a gather has
// no goroutine of its own, and nothing to stop.
type gather[In, Out any] struct {
	// call makes one call for several requests. Its outcomes are in their order.
	call func(in []In) ([]Out, error)
	// fit returns how many requests, counted from the first, share a call: at least one.
	fit func(in []In) int
	// wait is how long the first request of a call waits for others. The wait ends as soon as the
	// call is full.
	wait time.Duration
	full int
	// more is the number of full calls that may be under way beside one. Without them, the time of
	// one call would bound the throughput. Only full ones qualify, because small extra calls would
	// cost Redis most when it is short of time.
	more int

	mu sync.Mutex // guards what follows
	// queue holds the requests that no call has taken. The first of them makes the next call.
	queue []*gathered[In, Out]
	// waiting is closed to end the first request's wait; nil while it does not wait.
	waiting chan struct{}
	// urgent is true if the next call does not wait. led is true if the first request has the duty
	// to make it. calling counts the calls under way.
	urgent, led bool
	calling     int
}

// gathered is one request. out and err are set before done is closed.
type gathered[In, Out any] struct {
	in    In
	since time.Time
	first chan struct{} // closed when this request has to make the next call
	done  chan struct{}
	out   Out
	err   error
}

// do waits for the outcome of one request, or until ctx ends; the request may then have been
// carried out. An urgent request ends the wait for others.
func (g *gather[In, Out]) do(ctx context.Context, in In, urgent bool) (out Out, err error) {
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	it := &gathered[In, Out]{in: in, since: time.Now(), first: make(chan struct{}), done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, it)
	if urgent || len(g.queue) == g.full {
		g.goOn()
	}
	g.next()
	g.mu.Unlock()
	select {
	case <-it.done:
		return it.out, it.err
	case <-ctx.Done():
		g.leave(it)
		return out, ctx.Err()
	case <-it.first:
		g.lead(ctx, it)
		return it.out, it.err
	}
}

// hurry ends the wait for others. If there is no request yet, the next one does not wait.
func (g *gather[In, Out]) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.goOn()
}

// goOn ends the first request's wait. The caller holds mu.
func (g *gather[In, Out]) goOn() {
	g.urgent = true
	if g.waiting != nil {
		close(g.waiting)
		g.waiting = nil
	}
}

// lead makes the next call, which includes it, the first of the queue.
func (g *gather[In, Out]) lead(ctx context.Context, it *gathered[In, Out]) {
	g.mu.Lock()
	if left := g.wait - time.Since(it.since); left > 0 && !g.urgent {
		hurried := make(chan struct{})
		g.waiting = hurried
		g.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-hurried:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	} else {
		g.mu.Unlock()
		runtime.Gosched() // requests of one frame come together
	}
	if ctx.Err() != nil {
		g.leave(it)
		it.err = ctx.Err()
		return
	}
	g.mu.Lock()
	g.waiting, g.led = nil, false
	g.calling++
	in := make([]In, min(len(g.queue), mostTogether))
	for i := range in {
		in[i] = g.queue[i].in
	}
	n := g.fit(in)
	taken := g.queue[:n:n]
	g.queue = g.queue[n:]
	g.urgent = len(g.queue) > 0
	g.next()
	g.mu.Unlock()
	out, err := g.call(in[:n])
	for i, of := range taken {
		if of.err = err; err == nil {
			of.out = out[i]
		}
		close(of.done)
	}
	g.mu.Lock()
	g.calling--
	g.next()
	g.mu.Unlock()
}

// next tells the first request to make the next call, if one more call may start. The caller holds
// mu.
func (g *gather[In, Out]) next() {
	switch {
	case len(g.queue) == 0:
		g.queue = nil // frees what lies before it
	case !g.led && (g.calling == 0 || g.calling <= g.more && len(g.queue) >= g.full):
		g.led = true
		close(g.queue[0].first)
	}
}

// leave takes a request that gives up out of the queue.
func (g *gather[In, Out]) leave(it *gathered[In, Out]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, of := range g.queue {
		if of == it {
			g.queue = slices.Delete(g.queue, i, i+1) // requests that a call has taken lie before the queue's start
			if i == 0 && g.led {
				g.waiting, g.led = nil, false
				g.next()
			}
			return
		}
	}
}
