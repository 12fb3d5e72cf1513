package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

// unlock gives back a hold whose last entry has left. If it is the turn of a waiter of this
// process, that waiter gets the lock.
func (m *Manager) unlock(ctx context.Context, a *acquisition) error {
	m.forget(a, ErrUnlocked)
	it := releaseItem{a: a, reason: "unlocked", keep: a.keep()}
	if a.local != nil {
		it.heir, it.pass = a.local.heir(a)
		it.pass = it.pass && it.keep == 0
		if it.heir != nil && !a.group.enlist(it.heir) { // before the call: the grant may come before its answer
			it.heir = nil // it gave up just now
		}
	}
	m.detach(a)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.opts.callTimeout)
	defer cancel()
	out, doubt, err := a.group.repeatRelease(ctx, it)
	if err != nil && !final(err) || a.doubt.Load() {
		a.group.owe(it)
	}
	switch {
	case err != nil:
		return fmt.Errorf("unlock %q: %w", a.cfg.Key, err)
	case out.had:
		return nil
	case a.over():
		return fmt.Errorf("%w: %w", ErrLost, ErrExpired)
	case doubt:
		return nil // an earlier try has given it back
	default:
		return fmt.Errorf("%w: %w", ErrLost, ErrGone)
	}
}

// repeatRelease repeats a release until Redis answers or ctx ends. doubt is true if Redis may have
// carried out a try whose answer did not come.
func (g *group) repeatRelease(ctx context.Context, it releaseItem) (out released, doubt bool, err error) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 5*time.Millisecond, 200*time.Millisecond
	for {
		out, err = g.releaseOnce(ctx, it)
		if err == nil || final(err) {
			return out, doubt, err
		}
		doubt = doubt || inDoubt(err)
		it.heir = nil // it asks Redis itself by now
		select {
		case <-time.After(retry.NextBackOff()):
		case <-ctx.Done():
			return out, doubt, err
		}
	}
}

// releaseOnce calls release.lua once, and tells the heir the result.
func (g *group) releaseOnce(ctx context.Context, it releaseItem) (released, error) {
	if it.a.ticket.Load() {
		// A beat that is under way may take longer. Then the release is repeated until a lease has
		// passed.
		waiting, cancel := context.WithTimeout(ctx, g.m.opts.callTimeout/2)
		if !g.awaitBeat(waiting) {
			it.a.doubt.Store(true)
		}
		cancel()
	}
	out, err := g.releases.DoOne(ctx, it)
	err = errors.Join(err, out.err)
	if errors.Is(err, script.ErrStopped) {
		err = ErrClosed
	}
	if it.heir == nil {
		return out, err
	}
	if err == nil && out.had {
		it.a.local.gave(out, out.token > 0)
	}
	switch {
	case err == nil && out.token > 0 && g.m.opts.Replicas == 0:
		it.heir.grant(grant{token: out.token, until: it.heir.confirmed(out.sent), claimed: true})
	case err == nil && out.place != "":
		it.heir.queued(out.place)
	default:
		if inDoubt(err) {
			it.heir.doubt.Store(true)
		}
		it.heir.promote()
	}
	if it.heir.phase() == left {
		// It gave up meanwhile, and Redis may have carried out its own release before this one.
		g.owe(releaseItem{a: it.heir, reason: "left"})
	}
	return out, err
}

// inDoubt reports whether Redis may have carried out a call with that error, or may do it yet.
func inDoubt(err error) bool {
	return err != nil && !errors.Is(err, script.ErrNotSent) && !errors.Is(err, ErrClosed) &&
		!errors.As(err, new(*rueidis.RedisError)) && !final(err)
}

// final reports whether repeating a call with that error is useless.
func final(err error) bool {
	return errors.Is(err, ErrQueueFull) || errors.Is(err, ErrClosed) || errors.As(err, new(*KeyError)) ||
		script.IsRefused(err)
}

// debts holds the releases that a group still owes to Redis, after their callers have gone. A
// release is repeated until Redis has answered. If a call of the acquisition is in doubt, Redis may
// carry it out late and take the lock anew, so the release is then repeated until a lease has
// passed.
type debts struct {
	mu       sync.Mutex
	open     map[*acquisition]*debt // guarded by mu
	settling bool                   // guarded by mu; true while settle runs
	more     chan struct{}
}

type debt struct {
	it       releaseItem
	end, due time.Duration // by uptime
	pause    time.Duration
	answered bool // true once Redis has carried it out
}

const (
	// mostDebts bounds the releases that wait for Redis to come back. A release beyond it is
	// dropped, and its lock stays taken until its lease ends.
	mostDebts            = 10_000
	firstDebt, laterDebt = 20 * time.Millisecond, 2 * time.Second
)

// owe repeats a release in the background. That ends with the manager.
func (g *group) owe(it releaseItem) {
	it.heir = nil
	g.debts.mu.Lock()
	defer g.debts.mu.Unlock()
	before := g.debts.open[it.a]
	if before == nil && len(g.debts.open) >= mostDebts {
		g.repaid(&it, false)
		return
	}
	it.recovers = it.recovers || before != nil && before.it.recovers
	now := uptime()
	g.debts.open[it.a] = &debt{it: it, due: now, end: now + it.a.cfg.Lease, pause: firstDebt}
	if !g.debts.settling {
		g.debts.settling = g.m.background(func() { g.settle(g.m.ctx) })
	}
	select {
	case g.debts.more <- struct{}{}:
	default:
	}
}

// settle makes the releases that are due, until none is open.
func (g *group) settle(ctx context.Context) {
	for ctx.Err() == nil {
		due, wait, open := g.nextDebts()
		if !open {
			return
		}
		more := g.debts.more
		if len(due) > 0 {
			if g.settleOnce(ctx, due) {
				continue
			}
			wait, more = firstDebt, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-more:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// nextDebts returns the releases for the next call, and the time until more are due. open is false
// if none is open; then settle ends.
func (g *group) nextDebts() (due []*debt, wait time.Duration, open bool) {
	g.debts.mu.Lock()
	defer g.debts.mu.Unlock()
	now := uptime()
	wait = laterDebt
	for _, d := range g.debts.open {
		if d.due <= now && len(due) < callItems {
			due = append(due, d)
		}
		wait = min(wait, d.due-now)
	}
	g.debts.settling = len(g.debts.open) > 0
	return due, wait, g.debts.settling
}

// settleOnce makes one call. It returns false if Redis did not carry it out.
func (g *group) settleOnce(ctx context.Context, due []*debt) bool {
	ctx, cancel := context.WithTimeout(ctx, g.m.opts.callTimeout)
	defer cancel()
	items := make([]releaseItem, len(due))
	for i, d := range due {
		items[i] = d.it
	}
	if !g.awaitBeat(ctx) {
		return false
	}
	out, err := g.release(ctx, items)
	g.logDoubt("lock.release_failed", err)
	g.debts.mu.Lock()
	defer g.debts.mu.Unlock()
	now := uptime()
	for i, d := range due {
		a := d.it.a
		if g.debts.open[a] != d { // it came anew during the call, maybe after what it releases
			continue
		}
		if err == nil {
			d.answered = true
			g.repaid(&d.it, out[i].err == nil)
		}
		if err == nil && !a.doubt.Load() || err != nil && final(err) || now >= d.end {
			g.repaid(&d.it, false)
			delete(g.debts.open, a)
		} else {
			d.due, d.pause = now+d.pause, min(2*d.pause, laterDebt)
		}
	}
	return err == nil
}

// repaid counts the outcome of a recovery's release, once.
func (g *group) repaid(it *releaseItem, ok bool) {
	if it.recovers {
		it.recovers = false
		g.m.recovered(string(RecoverRelease), ok)
	}
}

// forgive drops what is still owed when the manager stops.
func (g *group) forgive() {
	g.debts.mu.Lock()
	defer g.debts.mu.Unlock()
	for _, d := range g.debts.open {
		g.repaid(&d.it, false)
	}
}
