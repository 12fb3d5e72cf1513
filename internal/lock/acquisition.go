package lock

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"
)

// Phases of an acquisition. They only grow.
const (
	waiting uint64 = iota // it may be in Redis' queue; no entry
	held                  // it has the lock; at least one entry
	ended                 // lost, or given back; entries from before the loss may remain
	left                  // it gave up waiting
)

// word is the packed state of an acquisition: the phase in bits 0 to 7, the count of entries in 8
// to 23, and above that a generation, which each change increments. Thus a compare-and-swap cannot
// mistake a state that came back for the one that was read.
type word uint64

func (w word) phase() uint64 { return uint64(w) & 0xff }
func (w word) count() int    { return int(uint64(w) >> 8 & 0xffff) }
func (w word) with(phase uint64, count int) word {
	return word((uint64(w)>>24+1)<<24 | uint64(count)<<8 | phase)
}

// maxEntries is the largest number of entries of one acquisition.
const maxEntries = 0xffff

// acquisition is one attempt to take a lock, and the hold that results. Redis identifies it by
// process and number.
type acquisition struct {
	cfg    Config
	group  *group
	number uint64
	holder string

	// state decides between entry, unlock and loss in one step: two racers compare-and-swap the
	// same word, and one of them fails.
	state atomic.Uint64
	// until is the end of the hold without another confirmation, by uptime. Confirmations only let
	// it grow. Only the watchdog takes it back, if the lease in Redis is shorter.
	until atomic.Int64
	// token, ctx and since are set before state becomes held.
	token int64
	// ctx ends with the hold; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
	since  time.Duration // by uptime

	origin   origin       // where in the program it was acquired
	long     atomic.Bool  // true once it is logged that it is held for long
	lastBeat atomic.Int64 // by uptime
	renewed  atomic.Int64 // when the last confirmed renewal was sent, by uptime
	claimed  atomic.Bool  // false while Redis has only a provisional grant
	ticket   atomic.Bool  // true once Redis may have a ticket of it
	local    *local       // nil for a fair lock
	doubt    atomic.Bool  // true once Redis may still carry out one of its calls whose answer did not come
	place    atomic.Pointer[string]

	checkAt  time.Duration // when the watchdog looks at it, by uptime; guarded by Manager.mu
	failures int           // checks that failed in a row; only the watchdog uses it
	noteAt   time.Duration // when it is noted for listings, by uptime, 0 before the first look; only the watchdog uses it

	// Only while it waits; one of each is enough. promoted makes it ask Redis itself.
	grants   chan grant
	promoted chan struct{}
}

// grant describes how an acquisition that waits got the lock.
type grant struct {
	token   int64
	until   time.Duration // by uptime
	claimed bool
}

func newAcquisition(g *group, cfg Config, number uint64, holder string) *acquisition {
	return &acquisition{
		cfg: cfg, group: g, number: number, holder: holder, grants: make(chan grant, 1), promoted: make(chan struct{}, 1),
	}
}

// id returns the name by which Redis identifies it.
func (a *acquisition) id() string {
	return a.group.process + ":" + strconv.FormatUint(a.number, 10)
}

// ticketText returns its entry in the queue, which hand_over.lua parses.
func (a *acquisition) ticketText() string {
	return a.id() + " " + strconv.FormatInt(a.cfg.Lease.Milliseconds(), 10) + " " + a.holder
}

// hold turns an acquisition that waited into a hold with one entry, whose context ends with parent.
func (a *acquisition) hold(parent context.Context, got grant) {
	now := uptime()
	a.token, a.since = got.token, now
	a.extend(got.until)
	a.claimed.Store(got.claimed)
	a.lastBeat.Store(int64(now))
	a.renewed.Store(int64(now))
	stop := context.CancelFunc(func() {})
	if a.cfg.MaxHold > 0 && a.cfg.Recovery != RecoverAlarm {
		parent, stop = context.WithTimeoutCause(parent, a.cfg.MaxHold, ErrMaxHold)
	}
	ctx, cancel := context.WithCancelCause(parent)
	a.ctx, a.cancel = ctx, func(cause error) {
		cancel(cause)
		stop()
	}
	a.state.Store(uint64(word(a.state.Load()).with(held, 1)))
}

// abandon ends an acquisition that waits. From then on it is not enlisted, and no release names it
// as an heir.
func (a *acquisition) abandon() { a.state.Store(uint64(word(a.state.Load()).with(left, 0))) }

// change replaces the state by the one that next returns, unless next refuses.
func (a *acquisition) change(next func(w word) (to word, ok bool)) (from word, done bool) {
	for {
		w := word(a.state.Load())
		to, ok := next(w)
		if !ok {
			return w, false
		}
		if a.state.CompareAndSwap(uint64(w), uint64(to)) {
			return w, true
		}
	}
}

// enter adds an entry to a hold that has not ended.
func (a *acquisition) enter() bool {
	_, entered := a.change(func(w word) (word, bool) {
		return w.with(held, w.count()+1), w.phase() == held && w.count() < maxEntries && !a.over() && a.ctx.Err() == nil
	})
	return entered
}

// leave takes an entry away. last is true for the last one, lost if the hold had ended before.
func (a *acquisition) leave() (last, lost bool) {
	from, _ := a.change(func(w word) (word, bool) {
		if w.phase() == held && w.count() == 1 {
			return w.with(ended, 0), true
		}
		return w.with(w.phase(), w.count()-1), true
	})
	return from.count() == 1, from.phase() == ended
}

// end ends the hold with that cause. It returns false if the hold had ended already.
func (a *acquisition) end(cause error) bool {
	_, done := a.change(func(w word) (word, bool) { return w.with(ended, w.count()), w.phase() == held })
	if done {
		a.cancel(cause)
	}
	return done
}

// grant hands a grant to the goroutine that waits. It replaces an earlier grant, which may be too
// old.
func (a *acquisition) grant(got grant) {
	for {
		select {
		case a.grants <- got:
			return
		default:
		}
		select {
		case <-a.grants:
		default:
		}
	}
}

// promote makes an acquisition that waits ask Redis itself.
func (a *acquisition) promote() {
	select {
	case a.promoted <- struct{}{}:
	default:
	}
}

// queued records the place in the queue.
func (a *acquisition) queued(place string) { a.place.Store(&place) }

// inQueue returns the place in the queue, "0" before the first answer.
func (a *acquisition) inQueue() string {
	if place := a.place.Load(); place != nil {
		return *place
	}
	return "0"
}

// keep returns how long the lock stays taken after Unlock (the rest of AtLeast).
func (a *acquisition) keep() time.Duration {
	return max(0, a.cfg.AtLeast-(uptime()-a.since))
}

func (a *acquisition) phase() uint64 { return word(a.state.Load()).phase() }

// live reports whether it is a hold that was neither lost nor given back. Its context may have
// ended all the same, with the context that it was taken with.
func (a *acquisition) live() bool { return a.phase() == held }

// over reports whether the end has passed by the clock, whether or not the context has ended.
func (a *acquisition) over() bool { return int64(uptime()) >= a.until.Load() }

// extend moves the end to until, unless the end is later already.
func (a *acquisition) extend(until time.Duration) {
	for {
		old := a.until.Load()
		if int64(until) <= old || a.until.CompareAndSwap(old, int64(until)) {
			return
		}
	}
}

// confirmed returns the end after a call that was sent at that moment and answered.
func (a *acquisition) confirmed(sent time.Duration) time.Duration {
	return sent + a.cfg.Lease - a.cfg.Margin
}
