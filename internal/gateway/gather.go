package gateway

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/socket"
)

// mostTogether is the largest number of requests in a call. A call looks at no more of the queue
// than that: while Redis stands still the queue grows, and copying all of it for each call would
// take quadratic time.
const mostTogether = 64

// errLate is the outcome of a request that has had none in time. It may have been carried out.
var errLate = errors.New("no outcome in time")

// gather lets requests share calls. While a call is under way, the next one collects, and starts
// beside it only when it is full. Callers do not wait: done hands them the outcomes. A gather has
// one goroutine for each call, and one timer for all its requests.
type gather[In, Out any] struct {
	// call makes one call for several requests. Its outcomes are in their order.
	call func(in []In) ([]Out, error)
	// done gets each request once, with its outcome or the error. It must not block.
	done func(in []In, out []Out, err error)
	// fit returns how many requests, counted from the first, share a call: at least one.
	fit func(in []In) int
	// wait is how long the first request of a call waits for others. The wait ends as soon as the
	// call is full.
	wait time.Duration
	// patience is how long a request has from its begin. After that its outcome is errLate. 0 is as
	// long as the calls take.
	patience time.Duration
	full     int
	// more is the number of full calls that may be under way beside one. Without them, the time of
	// one call would bound the throughput. Only full ones qualify, because small extra calls would
	// cost Redis most when it is short of time.
	more int

	mu sync.Mutex // guards what follows
	// queue holds the requests that no call has taken, the oldest first.
	queue []*gathered[In]
	// calls holds the requests of the calls under way.
	calls [][]*gathered[In]
	// urgent is true if the next call does not wait. starting is true if its goroutine was started.
	urgent, starting bool
	// timer calls expire at the time at. The zero time means that it is stopped.
	timer *time.Timer
	at    time.Time
	// busy counts the goroutines. idle is signalled when it becomes 0.
	busy int
	idle sync.Cond
}

type gathered[In any] struct {
	in    In
	begin time.Time
	over  bool // it was late
}

// add queues requests that began at a time. Urgent ones end the wait for others.
func (g *gather[In, Out]) add(begin time.Time, urgent bool, in ...In) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range in {
		at := len(g.queue)
		for at > 0 && g.queue[at-1].begin.After(begin) { // a heartbeat that has waited for its turn
			at--
		}
		g.queue = slices.Insert(g.queue, at, &gathered[In]{in: in[i], begin: begin})
	}
	g.urgent = g.urgent || urgent || len(g.queue) >= g.full
	g.next()
}

// hurry ends the wait for others. If there is no request yet, the next one does not wait.
func (g *gather[In, Out]) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.urgent = true
	g.next()
}

// rest waits until no goroutine is left, and stops the timer.
func (g *gather[In, Out]) rest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle.L = &g.mu
	for g.busy > 0 {
		g.idle.Wait()
	}
	if g.timer != nil {
		g.timer.Stop()
		g.at = time.Time{}
	}
}

// next starts the next call if it may start, and sets the timer. The caller holds mu.
func (g *gather[In, Out]) next() {
	switch {
	case len(g.queue) == 0:
		g.queue = nil // frees what lies before it
	case g.starting || len(g.calls) > 0 && (len(g.calls) > g.more || len(g.queue) < g.full):
	case g.wait > 0 && !g.urgent && time.Since(g.queue[0].begin) < g.wait:
		g.wakeAt(g.queue[0].begin.Add(g.wait))
	default:
		g.starting = true
		g.busy++
		go g.run()
	}
	for _, taken := range g.calls {
		g.wakeFor(taken)
	}
	g.wakeFor(g.queue)
}

// wakeFor sets the timer for the oldest of these requests. The caller holds mu.
func (g *gather[In, Out]) wakeFor(of []*gathered[In]) {
	i := slices.IndexFunc(of, func(it *gathered[In]) bool { return !it.over })
	if g.patience > 0 && i >= 0 {
		g.wakeAt(of[i].begin.Add(g.patience))
	}
}

// wakeAt sets the timer, unless it is set to an earlier time. The caller holds mu.
func (g *gather[In, Out]) wakeAt(at time.Time) {
	if !g.at.IsZero() && !at.Before(g.at) {
		return
	}
	if g.timer == nil {
		g.timer = socket.StoppedTimer(g.expire)
	}
	g.at = at
	g.timer.Reset(time.Until(at))
}

// expire ends the wait for others, and the requests that are late.
func (g *gather[In, Out]) expire() {
	g.mu.Lock()
	g.at = time.Time{}
	g.busy++
	late := g.late(g.queue)
	g.queue = g.queue[len(late):] // the oldest
	for _, taken := range g.calls {
		late = append(late, g.late(taken)...)
	}
	g.next()
	g.mu.Unlock()
	if len(late) > 0 {
		g.done(late, nil, errLate)
	}
	g.ended()
}

// late marks the late ones of these requests, the oldest, and returns them. The caller holds mu.
func (g *gather[In, Out]) late(of []*gathered[In]) (late []In) {
	if g.patience == 0 {
		return nil
	}
	begin := time.Now().Add(-g.patience)
	for _, it := range of {
		if it.begin.After(begin) {
			break
		}
		if !it.over {
			it.over = true
			late = append(late, it.in)
		}
	}
	return late
}

// run makes one call. The requests that came since its goroutine was started share it.
func (g *gather[In, Out]) run() {
	defer g.ended()
	taken := g.take()
	if len(taken) == 0 {
		return
	}
	in := ins(taken)
	out, err := g.call(in)
	g.mu.Lock()
	g.calls = slices.DeleteFunc(g.calls, func(of []*gathered[In]) bool { return of[0] == taken[0] })
	live := 0
	for i := range taken {
		if taken[i].over {
			continue
		}
		in[live] = in[i]
		if err == nil {
			out[live] = out[i]
		}
		live++
	}
	g.next()
	g.mu.Unlock()
	if live == 0 {
		return
	}
	if err == nil {
		out = out[:live]
	}
	g.done(in[:live], out, err)
}

// take takes the requests of the next call; none if all were late meanwhile.
func (g *gather[In, Out]) take() []*gathered[In] {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starting = false
	if len(g.queue) == 0 {
		return nil
	}
	n := g.fit(ins(g.queue[:min(len(g.queue), mostTogether)]))
	taken := g.queue[:n:n]
	g.queue = g.queue[n:]
	g.calls = append(g.calls, taken)
	g.urgent = len(g.queue) > 0
	g.next()
	return taken
}

func (g *gather[In, Out]) ended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy--; g.busy == 0 {
		g.idle.Broadcast()
	}
}

func ins[In any](of []*gathered[In]) []In {
	in := make([]In, len(of))
	for i := range of {
		in[i] = of[i].in
	}
	return in
}
