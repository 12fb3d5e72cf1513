package lock

import (
	"slices"
	"time"
)

// twin says what the scripts must do, in the plainest way: it looks at everything each time.
type twin struct {
	limit, window time.Duration
	locks         map[string]*twinLock
	procs         []*twinProc
	entered       int // tickets so far
	woken         []*client
	shown         bool // the call under way has shown that its process lives
}

// twinProc is a process as Redis sees it.
type twinProc struct {
	beaten  bool
	age     time.Duration // since its last beat
	listens bool
}

type twinLock struct {
	owner   *client // nil for a lock that is free, or kept
	kept    bool    // given back, and nobody gets it
	grant   bool    // not claimed yet
	ttl     time.Duration
	revoked bool
	queue   []*client
	grants  int // how often the owner has changed
}

// client is one acquisition and what its process believes.
type client struct {
	proc  int
	a     *acquisition
	order int  // among all tickets that ever entered
	known bool // its process knows the place
	// waited is true once it has asked as one that waits.
	waited bool
	// believes that it has the lock.
	believes bool
	gone     bool // released; what Redis does for it now is a ghost
}

func (c *client) lock() string { return c.a.cfg.Key }

func (p *twinProc) live(limit time.Duration) bool { return p.beaten && p.age <= limit }

// acquire is what one item of acquire.lua does.
func (w *twin) acquire(c *client, wait bool) (code int) {
	l := w.locks[c.lock()]
	if free := l.owner == nil && !l.kept; wait && !w.shown && (c.known || !free && l.owner != c || free && c.a.cfg.Fair && len(l.queue) > 0) {
		w.shown, w.procs[c.proc].beaten, w.procs[c.proc].age = true, true, 0
	}
	if l.owner == nil && !l.kept && len(l.queue) > 0 && (c.a.cfg.Fair || c.known && wait) {
		if wait {
			w.enter(l, c)
		}
		w.handOver(l, c.proc)
	}
	switch {
	case l.owner == nil && !l.kept:
		w.give(l, c, c.a.cfg.Lease, false)
	case l.owner == c:
		l.ttl, l.grant = c.a.cfg.Lease, false
	default:
		if wait {
			w.enter(l, c)
		}
		return codeBusy
	}
	return codeDone
}

// enter keeps the queue in the order of the places.
func (w *twin) enter(l *twinLock, c *client) {
	if slices.Contains(l.queue, c) {
		return
	}
	if !c.known {
		w.entered++
		c.order = w.entered
	}
	l.queue = append(l.queue, c)
	slices.SortFunc(l.queue, func(x, y *client) int { return x.order - y.order })
}

func (w *twin) leave(l *twinLock, c *client) {
	l.queue = slices.DeleteFunc(l.queue, func(x *client) bool { return x == c })
}

func (w *twin) give(l *twinLock, c *client, ttl time.Duration, grant bool) {
	w.leave(l, c)
	*l = twinLock{owner: c, ttl: ttl, grant: grant, queue: l.queue, grants: l.grants + 1}
}

func (w *twin) free(l *twinLock) { *l = twinLock{queue: l.queue, grants: l.grants} }

// handOver gives a free lock to the first live ticket that can be reached, and drops those that are
// neither.
func (w *twin) handOver(l *twinLock, self int) {
	for _, c := range slices.Clone(l.queue) {
		p := w.procs[c.proc]
		live := p.live(w.limit)
		if live && (p.listens || c.proc == self) {
			w.give(l, c, w.window, true)
			p.age = max(p.age, w.limit-w.window+time.Millisecond)
			if p.listens {
				w.woken = append(w.woken, c)
			}
			return
		}
		if !live {
			w.leave(l, c)
		}
	}
}

// release is what one item of release.lua does.
func (w *twin) release(c *client, ticket bool, keep time.Duration, heir *client, pass bool) (out released) {
	l := w.locks[c.lock()]
	if ticket {
		w.leave(l, c)
	}
	if l.owner != c {
		return out
	}
	out.had = true
	others := slices.DeleteFunc(slices.Clone(l.queue), func(x *client) bool { return x == heir })
	out.others = int64(len(others))
	revoked := l.revoked
	w.free(l)
	if keep > 0 {
		l.kept, l.ttl, l.revoked = true, keep, revoked
	}
	switch {
	case heir != nil && !l.kept && (pass || len(others) == 0):
		w.give(l, heir, heir.a.cfg.Lease, false)
		out.token = 1
		return out
	case heir != nil:
		known := heir.known
		heir.known = false // the script brings it in behind all others
		w.enter(l, heir)
		heir.known = known
		out.place = "1"
	}
	if !l.kept && len(others) > 0 {
		w.handOver(l, -1)
	}
	return out
}

// renew is what one item of renew.lua does.
func (w *twin) renew(c *client, look bool) (code int) {
	l := w.locks[c.lock()]
	switch {
	case l.kept || l.owner != nil && l.owner != c:
		return codeTaken
	case l.owner == nil:
		return codeGone
	case l.revoked:
		return codeRevoked
	case !look:
		l.ttl, l.grant = c.a.cfg.Lease, false
	}
	return codeDone
}

// pass lets the time of a provisional grant pass: whoever has not claimed loses it.
func (w *twin) pass() (lost []string) {
	for _, p := range w.procs {
		p.age += w.window
	}
	for name, l := range w.locks {
		if l.grant {
			w.free(l)
			lost = append(lost, name)
		}
	}
	return lost
}
