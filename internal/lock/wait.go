package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot/internal/script"
)

// Lock is one lock; Manager.Get makes it. It is safe for concurrent use. A lock that is held is
// renewed as long as the process lives, even if the goroutine that holds it hangs, or ends without
// Unlock. Do always unlocks. Config.MaxHold, and the context that you lock with, bound what may
// hang.
type Lock struct {
	m   *Manager
	cfg Config
}

// Config returns what Get was called with, with its defaults.
func (l *Lock) Config() Config { return l.cfg }

// Lock waits for the lock until ctx ends. ctx, and so its deadline, bounds the hold, too: see
// Held.Context. To bound only the waiting, use TryLock. A hold whose ctx never ends is renewed
// until Unlock; see Lock. While Redis does not answer, Lock keeps trying. Errors: the cause of ctx,
// with the last failure; ErrQueueFull; a *KeyError; a refusal by Redis' access control; ErrClosed;
// ErrNotStarted.
func (l *Lock) Lock(ctx context.Context) (*Held, error) { return l.take(ctx, ctx, true) }

// TryLock waits for the lock until wait is over or ctx ends; with 0 or less it looks once. If
// another holder has the lock, it returns a *HeldError, which matches ErrNotAcquired. If a call of
// Redis failed, it returns its error. Otherwise it fails as Lock does.
func (l *Lock) TryLock(ctx context.Context, wait time.Duration) (*Held, error) {
	if wait <= 0 {
		return l.take(ctx, ctx, false)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, wait, ErrNotAcquired)
	defer cancel()
	return l.take(ctx, waiting, true)
}

// Do runs f with the lock, and unlocks it after f returns or panics. It fails as Lock does, or
// returns the errors of f and of Unlock, joined: an ErrLost says that the lock was lost while f
// ran.
func (l *Lock) Do(ctx context.Context, f func(ctx context.Context, token int64) error) (err error) {
	h, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Unlock(ctx)) }()
	return f(h.Context(), h.Token())
}

// take enters a hold that ctx belongs to, or takes the lock. waiting bounds the waiting, ctx the
// hold.
func (l *Lock) take(ctx, waiting context.Context, wait bool) (*Held, error) {
	if a := owner(ctx, l.m, l.cfg.Key); a != nil && a.enter() {
		return newEntry(ctx, l.m, a), nil
	}
	g, err := l.m.groupOf(l.cfg.Key)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	begin := time.Now()
	a := newAcquisition(g, l.cfg, l.m.number.Add(1), l.m.opts.Holder)
	a.origin = callerOf()
	l.m.attach(a)
	l.m.metrics.queue.Inc()
	got, err := l.m.await(waiting, a, wait)
	l.m.metrics.queue.Dec()
	if err != nil {
		l.m.gaveUp(a, time.Since(begin), err)
		return nil, err
	}
	a.hold(ctx, got)
	l.m.took(a, time.Since(begin))
	return newHeld(l.m, a), nil
}

// await gets an acquisition its lock.
func (m *Manager) await(ctx context.Context, a *acquisition, wait bool) (grant, error) {
	if !wait {
		got, err := m.ask(ctx, a, false)
		if err == nil && got.code == codeBusy {
			err = got.heldError(a.cfg.Key)
		}
		return grant{token: got.token, until: a.confirmed(got.sent), claimed: true}, err
	}
	if !a.cfg.Fair && !a.local.join(a) {
		if got, done, err := m.awaitLocal(ctx, a); done || err != nil {
			return got, err
		}
	}
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 5*time.Millisecond, time.Second
	// The first look needs no subscription.
	queue := a.group.subscribed()
	var last error
	for {
		if queue {
			a.group.enlist(a)
		}
		got, err := m.ask(ctx, a, queue)
		var pause time.Duration
		switch {
		case err == nil && got.code == codeDone:
			return grant{token: got.token, until: a.confirmed(got.sent), claimed: true}, nil
		case err == nil:
			retry.Reset()
			busy := got.heldError(a.cfg.Key)
			last = busy
			if a.local != nil {
				a.local.saw(*busy)
			}
			if !queue {
				queue = true
				m.awaitSubscription(ctx, a.group)
				continue
			}
			a.group.answered(a, got)
		case final(err):
			return grant{}, err
		default:
			last, pause = err, retry.NextBackOff()
		}
		granted, done, err := m.sleep(ctx, a, pause)
		switch {
		case done:
			return granted, nil
		case errors.Is(err, ErrNotAcquired):
			return grant{}, last
		case err != nil:
			return grant{}, errors.Join(err, last)
		}
	}
}

// awaitLocal waits while another acquisition of this process has the lock or contends for it.
func (m *Manager) awaitLocal(ctx context.Context, a *acquisition) (got grant, done bool, err error) {
	got, done, err = m.sleep(ctx, a, 0)
	switch {
	case errors.Is(err, ErrNotAcquired):
		err = a.local.heldError(a.cfg.Key)
	case err != nil && ctx.Err() != nil:
		err = errors.Join(err, a.local.heldError(a.cfg.Key))
	}
	return got, done, err
}

// subscribeLimit is how long a waiter waits for the subscription to be confirmed. Without one, its
// beats find its grants.
const subscribeLimit = 250 * time.Millisecond

func (m *Manager) awaitSubscription(ctx context.Context, g *group) {
	timer := time.NewTimer(subscribeLimit)
	defer timer.Stop()
	select {
	case <-g.ready:
	case <-timer.C:
	case <-ctx.Done():
	case <-m.ctx.Done():
	}
}

// sleep waits for a grant until ctx ends. It returns without one after pause, unless that is 0, and
// when it is the acquisition's turn to ask Redis.
func (m *Manager) sleep(ctx context.Context, a *acquisition, pause time.Duration) (got grant, done bool, err error) {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case got := <-a.grants:
			if !got.claimed && a.group.late(got.until) {
				a.group.hurry() // it came too late to be used: the beat claims it
				continue
			}
			return got, true, nil
		case <-a.promoted:
			return grant{}, false, nil
		case <-over:
			return grant{}, false, nil
		case <-ctx.Done():
			return grant{}, false, context.Cause(ctx)
		case <-m.ctx.Done():
			return grant{}, false, ErrClosed
		}
	}
}

// ask calls acquire.lua once.
func (m *Manager) ask(ctx context.Context, a *acquisition, wait bool) (acquired, error) {
	got, err := a.group.acquires.DoOne(ctx, acquireItem{a: a, wait: wait, place: a.inQueue()})
	switch {
	case errors.Is(err, script.ErrStopped):
		return acquired{}, ErrClosed
	case err != nil:
		if inDoubt(err) {
			a.doubt.Store(true)
		}
		return acquired{}, fmt.Errorf("lock %q: %w", a.cfg.Key, err)
	}
	return got, got.err
}

func (got acquired) heldError(key string) *HeldError {
	return &HeldError{Key: key, Holder: got.holder, Since: got.since, Left: max(0, got.left)}
}
