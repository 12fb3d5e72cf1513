// Package follow holds what the followers of revisioned logs share: the service registry and its
// documents, the name lists, and the pools.
//
// A log is a state in Redis with a revision that each change raises by one. A follower keeps a copy
// of the state: it applies the change of each event, and fetches what it has missed.
package follow

import "time"

// heldLimit bounds the events that wait for the answer of a fetch.
const heldLimit = 1024

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Backoff returns the wait after a failure that followed this number of failures: first, then twice
// as long each time, up to last.
func Backoff(first, last time.Duration, failures int) time.Duration {
	return min(first<<min(failures, 10), last)
}

// Retry returns the wait before a page or a part of a log is fetched again.
func Retry(failures int) time.Duration { return Backoff(firstRetry, lastRetry, failures) }

// Fetch tells the follower of one log which page to fetch next, and holds the log's events
// meanwhile. P describes a page, E is an event. Fetch is a state machine without clock and I/O: its
// owner calls it from one goroutine with now, the time since any fixed moment. The zero value is
// idle.
//
//	idle --Begin--> due --Take--> under way --Answered--> idle
//	                 ^               |
//	                 +----Failed-----+
//
// Begin is allowed in every state. The answer of an earlier page is ignored after it.
type Fetch[P, E any] struct {
	page      P
	number    uint64 // of page
	step      step
	notBefore time.Duration // Take has nothing until then
	failures  int           // since the last answer
	held      []E           // events that came while the page was under way
	overflow  bool          // true if not all of them are in held
}

type step uint8

const (
	idle step = iota
	due
	underWay
)

// Begin makes a page due at this time.
func (f *Fetch[P, E]) Begin(page P, at time.Duration) {
	f.page, f.number, f.step, f.notBefore = page, f.number+1, due, at
}

// Idle reports whether no page is due or under way.
func (f *Fetch[P, E]) Idle() bool { return f.step == idle }

// Number returns how many pages were begun.
func (f *Fetch[P, E]) Number() uint64 { return f.number }

// Due returns the time from which Take returns a page; false if no page is due.
func (f *Fetch[P, E]) Due() (at time.Duration, ok bool) { return f.notBefore, f.step == due }

// Take returns the page to fetch now, if one is due. Answered or Failed ends it, by its number.
func (f *Fetch[P, E]) Take(now time.Duration) (page P, number uint64, ok bool) {
	if f.step != due || now < f.notBefore {
		return page, 0, false
	}
	f.step, f.held, f.overflow = underWay, nil, false // the answer includes the events until now
	return f.page, f.number, true
}

// Failed makes a page that brought nothing due again, after a wait.
func (f *Fetch[P, E]) Failed(number uint64, now time.Duration) {
	if number == f.number && f.step == underWay {
		f.step, f.notBefore = due, now+Retry(f.failures)
		f.failures++
	}
}

// Hasten ends the wait after a failure.
func (f *Fetch[P, E]) Hasten(now time.Duration) {
	if f.failures > 0 {
		f.notBefore = min(f.notBefore, now)
	}
}

// Answered returns the page with this number, if it is the one under way. The caller takes over its
// answer, and then begins the next page or replays the events.
func (f *Fetch[P, E]) Answered(number uint64) (page P, ok bool) {
	if number != f.number || f.step != underWay {
		return page, false
	}
	f.step, f.failures = idle, 0
	return f.page, true
}

// Hold keeps an event for Replay if a page is under way. While one is only due, the event is of no
// use, because the answer will include it.
func (f *Fetch[P, E]) Hold(event E) {
	switch {
	case f.step != underWay:
	case len(f.held) == heldLimit:
		f.overflow = true
	default:
		f.held = append(f.held, event)
	}
}

// Replay hands over the held events in their order. It returns true if some were dropped, and take
// has begun no page: the caller must then fetch what came after its own revision.
func (f *Fetch[P, E]) Replay(take func(E)) (missed bool) {
	held, overflow := f.held, f.overflow
	f.held, f.overflow = nil, false
	for _, event := range held {
		take(event)
	}
	return overflow && f.step == idle
}
