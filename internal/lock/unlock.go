package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot/internal/script"
)

// unlockLimit is how long Unlock waits for Redis where its ctx has ended.
const unlockLimit = time.Second

// unlock gives back a hold whose last entry has left, and hands it to a waiter of this process where that is its turn.
func (m *Manager) unlock(ctx context.Context, a *acquisition) error {
	m.forget(a, ErrUnlocked)
	it := releaseItem{a: a, reason: "unlocked", keep: a.keep()}
	if a.local != nil {
		it.heir, it.pass = a.local.heir(a)
		if it.keep > 0 {
			it.pass = false
		}
		if it.heir != nil {
			a.group.enlist(it.heir) // before the call: the grant may come before its answer
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockLimit)
	defer cancel()
	out, err := m.releaseOnce(ctx, it)
	if err != nil {
		m.background(func() {
			m.giveBack(a, "unlock", releaseItem{a: a, reason: "unlocked", keep: it.keep})
			m.detach(a)
		})
		return fmt.Errorf("unlock %q: %w", a.cfg.Key, err)
	}
	m.detach(a)
	if !out.had {
		return fmt.Errorf("%w: %w", ErrLost, ErrGone)
	}
	return nil
}

// releaseOnce is one call of release.lua, whose heir learns what came of it.
func (m *Manager) releaseOnce(ctx context.Context, it releaseItem) (released, error) {
	if it.a.ticket.Load() {
		// A beat under way may carry the acquisition.
		it.a.group.beating.RLock()
		it.a.group.beating.RUnlock() //nolint:staticcheck // the wait is the purpose
	}
	res := it.a.group.releases.Do(ctx, []releaseItem{it})[0]
	out, err := res.Out, errors.Join(res.Err, res.Out.err)
	if errors.Is(err, script.ErrStopped) {
		err = ErrClosed
	}
	if it.a.local != nil && err == nil && out.had {
		it.a.local.gave(out, out.token > 0)
	}
	if it.heir != nil {
		switch {
		case err == nil && out.token > 0:
			it.heir.grant(grant{token: out.token, until: it.heir.confirmed(out.sent), claimed: true})
		case err == nil && out.had:
			it.heir.queued(out.place)
		default:
			it.heir.promote()
		}
	}
	return out, err
}

// giveBack repeats a release until Redis has answered. Where a call of the acquisition is in doubt Redis may carry it
// out late, so the release is repeated until a lease has passed. It ends with the manager.
func (m *Manager) giveBack(a *acquisition, what string, it releaseItem) {
	end := uptime() + a.cfg.Lease
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval, retry.RandomizationFactor = 20*time.Millisecond, time.Second, 0.2
	for {
		ctx, cancel := context.WithTimeout(m.ctx, callTimeout)
		_, err := m.releaseOnce(ctx, it)
		cancel()
		it.heir = nil
		if err != nil {
			a.doubt.Store(true)
			a.group.logDoubt(what, err)
		}
		if err == nil && !a.doubt.Load() || uptime() >= end || m.ctx.Err() != nil {
			return
		}
		if err == nil {
			retry.MaxInterval = max(time.Second, a.cfg.Lease/8)
		}
		timer := time.NewTimer(retry.NextBackOff())
		select {
		case <-timer.C:
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// giveBackLost releases a lock whose hold was lost, once its holder has wound down: it may be in Redis still.
func (m *Manager) giveBackLost(a *acquisition) {
	if m.ctx.Err() != nil || a.returned.Swap(true) {
		return
	}
	m.background(func() { m.giveBack(a, "unlock", releaseItem{a: a, reason: "lost"}) })
}
