package lock

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	// claimAfter is the age at which an unclaimed grant is claimed. Most short holds are over by
	// then.
	claimAfter = 10 * time.Millisecond
	// clockPeriod is how often the loop looks for holds that are over, for callers that wait only
	// on Done.
	clockPeriod = 250 * time.Millisecond
	// renewRetry is the least time between two tries of one renewal.
	renewRetry = 50 * time.Millisecond
	// renewTogether is how much earlier a renewal may be made to share the call of one that is due.
	renewTogether = 20 * time.Millisecond
)

// renewals orders the holds by the time of their next renewal.
type renewals struct {
	mu      sync.Mutex
	due     dueHeap                       // guarded by mu
	index   map[*acquisition]*renewalTask // guarded by mu
	changed chan struct{}
	// turns counts how often the loop has looked. loop numbers the current loop: one that stood
	// still ends when it finds that another has taken its place.
	turns, loop atomic.Int64
}

type renewalTask struct {
	a  *acquisition
	at time.Duration
	i  int
}

// dueHeap is a heap of tasks, the first due on top; container/heap calls its methods.
type dueHeap []*renewalTask

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].i, h[j].i = i, j }
func (h *dueHeap) Push(x any)        { t := x.(*renewalTask); t.i = len(*h); *h = append(*h, t) }
func (h *dueHeap) Pop() any {
	t := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return t
}

// add sets the time of the next renewal.
func (r *renewals) add(a *acquisition, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index == nil {
		r.index = make(map[*acquisition]*renewalTask)
	}
	if t := r.index[a]; t != nil {
		t.at = at
		heap.Fix(&r.due, t.i)
	} else {
		t := &renewalTask{a: a, at: at}
		r.index[a] = t
		heap.Push(&r.due, t)
	}
	if r.due[0].a == a {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

func (r *renewals) remove(a *acquisition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.index[a]; t != nil {
		heap.Remove(&r.due, t.i)
		delete(r.index, a)
	}
}

// take removes the tasks that are due and those close enough to share their call, and returns the
// time until the next one.
func (r *renewals) take(now time.Duration) (due []*acquisition, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns.Add(1)
	for len(r.due) > 0 && (r.due[0].at <= now || len(due) > 0 && r.due[0].at <= now+renewTogether &&
		r.due[0].a.claimed.Load()) {
		t := heap.Pop(&r.due).(*renewalTask)
		delete(r.index, t.a)
		due = append(due, t.a)
	}
	wait = clockPeriod
	if len(r.due) > 0 {
		wait = min(wait, r.due[0].at-now)
	}
	return due, wait
}

// renewLoop renews what is due, and ends what is over, until ctx ends. number is the number of this
// loop.
func (m *Manager) renewLoop(ctx context.Context, number int64) {
	var calls sync.WaitGroup
	defer calls.Wait()
	timer := time.NewTimer(clockPeriod)
	defer timer.Stop()
	looked, end := uptime(), uptime()+clockPeriod
	for m.renewals.loop.Load() == number {
		select {
		case <-ctx.Done():
			return
		case <-m.renewals.changed:
		case <-timer.C:
		}
		now := uptime()
		due, wait := m.renewals.take(now)
		byGroup := make(map[*group][]*acquisition)
		for _, a := range due {
			switch { // do not renew what has ended
			case a.over():
				m.lose(a, ErrExpired)
			case a.live() && a.ctx.Err() == nil:
				byGroup[a.group] = append(byGroup[a.group], a)
			}
		}
		for g, all := range byGroup {
			for items := range slices.Chunk(all, callItems) {
				calls.Go(func() { m.renewItems(ctx, g, items) })
			}
		}
		if now >= end || now-looked >= clockPeriod {
			looked, end = now, m.expire()
		}
		timer.Reset(max(0, min(wait, end-uptime(), looked+clockPeriod-now)))
	}
}

// expire ends the holds whose end has passed, and returns the first end that has not.
func (m *Manager) expire() time.Duration {
	now := uptime() // once: a look at the clock is a system call
	next := now + clockPeriod
	for _, a := range m.held(func(a *acquisition) bool {
		until := time.Duration(a.until.Load())
		if now < until {
			next = min(next, until)
		}
		return now >= until
	}) {
		m.lose(a, ErrExpired)
	}
	return next
}

// renewItems makes one call for several holds of a group.
func (m *Manager) renewItems(ctx context.Context, g *group, items []*acquisition) {
	ctx, cancel := context.WithTimeout(ctx, g.runner.ConfirmTimeout())
	defer cancel()
	answers, err := g.renew(ctx, items, false)
	g.logDoubt("lock.renew_failed", err)
	for i, a := range items {
		if err == nil {
			m.renewedOne(a, answers[i])
			continue
		}
		m.metrics.renewals.WithLabelValues("unanswered").Inc()
		retry := min(a.cfg.Renewal/4, time.Second)
		if !a.claimed.Load() {
			retry = 0 // its end is near
		}
		m.renewLater(a, max(renewRetry, retry))
	}
}

// renewLater sets the next renewal of a hold that has not ended.
func (m *Manager) renewLater(a *acquisition, after time.Duration) {
	if a.live() {
		m.renewals.add(a, uptime()+after)
		if !a.live() { // it ended meanwhile, when there may have been no renewal to remove
			m.renewals.remove(a)
		}
	}
}

// renewedOne handles Redis' answer about one hold.
func (m *Manager) renewedOne(a *acquisition, got renewed) {
	if !a.live() {
		return // it ended during the call: the answer no longer matters
	}
	lost := ErrExpired // the answer came too late
	if got.code != codeDone {
		lost = a.loss(got)
	}
	if got.code != codeDone || a.over() {
		m.metrics.renewals.WithLabelValues("lost").Inc()
		m.lose(a, lost)
		return
	}
	m.metrics.renewals.WithLabelValues("confirmed").Inc()
	a.extend(a.confirmed(got.sent))
	a.claimed.Store(true)
	a.renewed.Store(int64(got.sent))
	m.tellLong(a, uptime()-a.since)
	m.renewLater(a, a.cfg.Renewal)
}

// longLeases is the number of leases after which a hold that nothing bounds is logged.
const longLeases = 10

// tellLong logs once that a hold is old and has no MaxHold: its holder may have ended, or hang.
func (m *Manager) tellLong(a *acquisition, age time.Duration) {
	if a.cfg.MaxHold > 0 || age < longLeases*a.cfg.Lease || a.long.Swap(true) {
		return
	}
	m.log.Warn("lock.held_long", zap.String("lock", a.cfg.Key), zap.Int64("token", a.token),
		zap.String("holder", a.holder),
		zap.Duration("held_for", age), zap.String("acquired_at", a.origin.String()),
		zap.String(
			"reason",
			"it is renewed as long as this process lives, also if its holder has ended without Unlock or hangs; "+
				"Config.MaxHold bounds a hold",
		))
}

// loss returns why Redis' answer ends a hold.
func (a *acquisition) loss(got renewed) error {
	switch {
	case a.over(): // so the lock is gone, or has another holder by now
		return ErrExpired
	case got.code == codeTaken:
		return fmt.Errorf("%w: %s", ErrTaken, got.text)
	case got.code == codeRevoked:
		return fmt.Errorf("%w: %s", ErrRevoked, got.text)
	case got.code == codeBadKey:
		return fmt.Errorf("%w: %w", ErrGone, &KeyError{Text: got.text})
	default:
		return ErrGone
	}
}
