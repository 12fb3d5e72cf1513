package lock

import (
	"slices"
	"sync"
	"time"
)

// passTime is how long the waiters of one process may pass an unfair lock among themselves while
// another process waits.
const passTime = 2 * time.Millisecond

// local tracks one unfair lock within this process: one of its waiters contends in Redis, the
// others wait here.
type local struct {
	mu sync.Mutex
	// holder has the lock. contender waits in Redis, or is about to. Invariant: if behind is not
	// empty, there is a holder or a contender.
	holder    *acquisition
	contender *acquisition
	behind    []*acquisition
	// others counts the tickets of other processes in Redis at the last release. passing is the
	// time, by uptime, since which waiters of this process have passed the lock on although others
	// waited; 0 for none.
	others  int64
	passing time.Duration
	// busy describes the last holder seen, at busyAt by uptime.
	busy   HeldError
	busyAt time.Duration
	// users counts the acquisitions that use this; guarded by Manager.mu.
	users int
}

// join adds a waiter. It returns true if the waiter has to contend.
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

// leave removes an acquisition that gave up, unlocked or lost the lock. If that leaves neither a
// holder nor a contender, the next waiter contends.
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

// heir returns who gets the lock that the holder gives back, or nil, and whether it gets the lock
// at once. The heir is the contender from then on.
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

// gave records Redis' answer to the release.
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

// saw records who has the lock, for those that wait here.
func (l *local) saw(busy HeldError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.busyAt = busy, uptime()
}

// heldError returns the error for an acquisition that waited here without getting the lock.
func (l *local) heldError(key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	busy := l.busy
	busy.Key = key
	busy.Left = max(0, busy.Left-(uptime()-l.busyAt))
	return &busy
}

// next makes the first waiter behind the contender. The caller holds mu.
func (l *local) next() *acquisition {
	l.contender = l.behind[0]
	l.behind = l.behind[1:]
	return l.contender
}

// remove removes a from the waiters. The caller holds mu.
func (l *local) remove(a *acquisition) {
	if l.contender == a {
		l.contender = nil
	}
	if i := slices.Index(l.behind, a); i >= 0 {
		l.behind = slices.Delete(l.behind, i, i+1)
	}
}
