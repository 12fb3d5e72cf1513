package lock

import (
	"slices"
	"sync"
	"time"
)

// passTime is for how long waiters of one process may pass an unfair lock among themselves while
// another process waits.
const passTime = 2 * time.Millisecond

// local is what this process knows of one lock that is not fair: one of its waiters contends in
// Redis, the others wait here.
type local struct {
	mu sync.Mutex
	// holder is the one that has the lock, contender the one that waits in Redis, or is about to.
	// Invariant: where some are behind there is a holder or a contender.
	holder    *acquisition
	contender *acquisition
	behind    []*acquisition
	// others is how many tickets of other processes were in Redis at the last release; passing is
	// since when the lock has gone from one waiter of this process to the next while there were
	// some, by uptime.
	others  int64
	passing time.Duration
	// busy is who was seen to have the lock, and when, by uptime.
	busy   HeldError
	busyAt time.Duration
	// users is how many acquisitions have it; guarded by Manager.mu.
	users int
}

// join lines a waiter up. It is true for the one that has to contend.
func (l *local) join(a *acquisition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == nil && l.contender == nil {
		l.contender = a
		return true
	}
	l.behind = append(l.behind, a)
	return false
}

// took makes a waiter, or a newcomer, the holder.
func (l *local) took(a *acquisition) {
	l.saw(HeldError{Holder: a.holder, Since: time.Now(), Left: a.cfg.Lease})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = a
	l.remove(a)
}

// leave takes out one that gave up, unlocked or lost the lock. Where no other is at it, the next
// one contends.
func (l *local) leave(a *acquisition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == a {
		l.holder = nil
	}
	l.remove(a)
	if l.holder == nil && l.contender == nil && len(l.behind) > 0 {
		l.next().promote()
	}
}

// heir is who gets the lock that the holder gives back, nil for none, and whether it gets it at
// once. It is the contender from then on.
func (l *local) heir(a *acquisition) (heir *acquisition, pass bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == a {
		l.holder = nil
	}
	heir = l.contender
	if heir == nil && len(l.behind) > 0 {
		heir = l.next()
	}
	pass = heir != nil && (l.others == 0 || l.passing == 0 || uptime()-l.passing < passTime)
	if !pass {
		l.passing = 0
	}
	return heir, pass
}

// gave takes over what Redis answered to the release.
func (l *local) gave(out released, passed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others = out.others
	switch {
	case !passed || out.others == 0:
		l.passing = 0
	case l.passing == 0:
		l.passing = uptime()
	}
}

// saw keeps who has the lock, for those that wait here.
func (l *local) saw(busy HeldError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.busyAt = busy, uptime()
}

// heldError is for one that has waited here in vain.
func (l *local) heldError(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	busy := l.busy
	busy.Key = key
	busy.Left = max(0, busy.Left-(uptime()-l.busyAt))
	return &busy
}

// next makes the first one behind the contender. mu is held.
func (l *local) next() *acquisition {
	l.contender = l.behind[0]
	l.behind = l.behind[1:]
	return l.contender
}

// remove takes a out of those that wait. mu is held.
func (l *local) remove(a *acquisition) {
	if l.contender == a {
		l.contender = nil
	}
	if i := slices.Index(l.behind, a); i >= 0 {
		l.behind = slices.Delete(l.behind, i, i+1)
	}
}
