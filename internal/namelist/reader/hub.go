package reader

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/beat"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/namelist"
)

const (
	// lookEvery is the time between looks at the lists that requests wait for.
	lookEvery = time.Second
	// linger is how long a list is still followed after the last request for it, since the next one
	// comes soon.
	linger = 10 * time.Second
	// maxWaiting bounds the number of lists that all requests together wait for.
	maxWaiting = 100_000
)

var (
	errWaiting = &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
		Message: "too many requests wait for changes of lists on this replica; ask without wait_ms",
	}
	errStopping = &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: time.Second, Message: "this replica stops; ask another one",
	}
)

// hub wakes requests that wait for changes of lists.
type hub struct {
	poll   func(ctx context.Context, names []string, history bool) ([]namelist.Mark, string, time.Time, error)
	follow func(list string, heard func(namelist.Event)) (stop func())

	mu      sync.Mutex
	stopped bool                // guarded by mu
	waiting int                 // guarded by mu; the number of lists that all requests wait for
	lists   map[string]*watched // guarded by mu
}

// watched is a followed list, guarded by the hub's mu.
type watched struct {
	waiters map[*waiter]bool
	left    time.Time // when the last waiter went
	stop    func()    // nil before it is followed
}

// waiter is a request that waits. wake holds a token when a list may have changed.
type waiter struct {
	known map[string]namelist.Mark
	wake  chan struct{}
}

// differs reports whether a list differs from what a caller knows. If the caller knows no birth,
// only the revision counts.
func differs(known, is namelist.Mark) bool {
	return known.Revision != is.Revision || known.Birth != "" && known.Birth != is.Birth
}

// await returns the marks of lists, once one of them differs from what the caller knows or the wait
// is over. done ends the wait, too.
func (h *hub) await(
	ctx context.Context, known map[string]namelist.Mark, history bool, wait time.Duration, done <-chan struct{},
) (namelist.ListMarks, error) {
	w := &waiter{known: known, wake: make(chan struct{}, 1)}
	if wait > 0 {
		select {
		case <-done: // the caller would at once repeat a request that is answered at once
			return namelist.ListMarks{}, errStopping
		default:
		}
		if err := h.enter(w); err != nil {
			return namelist.ListMarks{}, err
		}
		defer h.leave(w)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	names := slices.Sorted(maps.Keys(known))
	for over := wait <= 0; ; {
		out, err := h.marks(ctx, names, history)
		if err != nil || over {
			return out, err
		}
		for name, is := range out.Lists {
			over = over || differs(known[name], is)
		}
		if over {
			return out, nil
		}
		h.followAll(out.Lists)
		select {
		case <-w.wake:
		case <-timer.C:
			over = true
		case <-done:
			over = true
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

func (h *hub) marks(ctx context.Context, names []string, history bool) (out namelist.ListMarks, err error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	marks, is, at, err := h.poll(ctx, names, history)
	if err != nil {
		return out, err
	}
	out = namelist.ListMarks{AtMS: at.UnixMilli(), History: is, Lists: make(map[string]namelist.Mark, len(names))}
	for i, name := range names {
		out.Lists[name] = marks[i]
	}
	return out, nil
}

func (h *hub) enter(w *waiter) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting+len(w.known) > maxWaiting {
		return errWaiting
	}
	h.waiting += len(w.known)
	for name := range w.known {
		if h.lists[name] == nil {
			h.lists[name] = &watched{waiters: make(map[*waiter]bool)}
		}
		h.lists[name].waiters[w] = true
	}
	return nil
}

func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting -= len(w.known)
	for name := range w.known {
		on := h.lists[name]
		if delete(on.waiters, w); len(on.waiters) == 0 {
			on.left = time.Now()
		}
	}
}

// followAll follows the lists that exist: names that callers make up must cost no subscriptions.
// When a subscription begins, it wakes the waiters, so that they look again.
func (h *hub) followAll(lists map[string]namelist.Mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, is := range lists {
		if on := h.lists[name]; is.Birth != "" && on.stop == nil && !h.stopped {
			on.stop = h.follow(name, func(namelist.Event) {
				h.mu.Lock()
				defer h.mu.Unlock()
				for w := range on.waiters {
					follow.Wake(w.wake)
				}
			})
		}
	}
}

// loop looks at the lists regularly, as a check on the subscriptions, until ctx ends.
func (h *hub) loop(ctx context.Context) {
	for {
		pause := time.NewTimer(beat.Pause(lookEvery))
		select {
		case <-ctx.Done():
			pause.Stop()
			h.mu.Lock()
			h.stopped = true
			h.mu.Unlock()
			for _, stop := range h.drop(func(*watched) bool { return true }) {
				stop()
			}
			return
		case <-pause.C:
		}
		for _, stop := range h.drop(func(w *watched) bool { return len(w.waiters) == 0 && time.Since(w.left) > linger }) {
			stop()
		}
		for names := range slices.Chunk(h.waitedFor(), namelist.LookLists) {
			if is, err := h.marks(ctx, names, false); err == nil { // otherwise the waiters notice it themselves
				h.wake(is.Lists)
			}
		}
	}
}

// drop forgets the lists that satisfy is, and returns functions that end their subscriptions.
func (h *hub) drop(is func(*watched) bool) (stops []func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, on := range h.lists {
		if !is(on) {
			continue
		}
		if len(on.waiters) == 0 {
			delete(h.lists, name)
		}
		if on.stop != nil {
			stops = append(stops, on.stop)
			on.stop = nil
		}
	}
	return stops
}

func (h *hub) waitedFor() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, on := range h.lists {
		if len(on.waiters) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// wake wakes the waiters that know something else of a list.
func (h *hub) wake(is map[string]namelist.Mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, mark := range is {
		on := h.lists[name]
		if on == nil {
			continue
		}
		for w := range on.waiters {
			if differs(w.known[name], mark) {
				follow.Wake(w.wake)
			}
		}
	}
}
