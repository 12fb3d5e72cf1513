package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Held is one entry of a lock that is held. All methods are safe for concurrent use.
type Held struct {
	m    *Manager
	a    *acquisition
	ctx  *holdContext
	end  context.CancelCauseFunc // only of a further entry
	done atomic.Bool
}

// newHeld returns the first entry of a hold.
func newHeld(m *Manager, a *acquisition) *Held {
	return &Held{m: m, a: a, ctx: newHoldContext(a.ctx, m, a), end: func(error) {}}
}

// newEntry returns a further entry. Its context is made from ctx, and ends with the hold or with
// its own Unlock.
func newEntry(ctx context.Context, m *Manager, a *acquisition) *Held {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })
	return &Held{m: m, a: a, ctx: newHoldContext(ctx, m, a), end: func(cause error) {
		stop()
		cancel(cause)
	}}
}

// Context ends when the lock is lost, when the context ends that it was taken with, or on Unlock.
// The context of the first entry ends when the last entry is unlocked. context.Cause says why.
// Check it before each write to what the lock guards: Err looks at the clock, so it notices the end
// even in a process that was stopped meanwhile.
//
// Locking the same key with this context, or one made from it, enters the lock again without asking
// Redis; see WithoutOwner.
func (h *Held) Context() context.Context { return h.ctx }

// Token returns the fencing token, which is above all earlier tokens of this lock. Do not compare
// tokens of different locks.
func (h *Held) Token() int64 { return h.a.token }

// Beat shows that the holder makes progress. It is needed only with Config.BeatTimeout.
func (h *Held) Beat() { h.a.lastBeat.Store(int64(uptime())) }

// Unlock takes this entry back. The last one ends the context and gives the lock back, even if ctx
// has ended. That takes about a second at most, and goes on in the background until Redis has
// answered or the lease is over. After a loss, too, the last entry gives back what Redis may still
// have.
//
// Errors: ErrNotHeld if this entry was unlocked before. ErrLost, with the cause, if the lock was
// lost before, or Redis no longer had it. Any other error says that Redis has not answered yet.
func (h *Held) Unlock(ctx context.Context) error {
	if h.done.Swap(true) {
		return ErrNotHeld
	}
	_ = h.ctx.Err() // a hold whose end has passed is lost, even if no loop has noticed yet
	defer h.end(ErrUnlocked)
	last, lost := h.a.leave()
	switch {
	case lost:
		<-h.a.ctx.Done() // whatever ended the hold sets the cause first
		if last {
			h.a.group.owe(releaseItem{a: h.a, reason: "lost", keep: h.a.keep()})
		}
		return fmt.Errorf("%w: %w", ErrLost, context.Cause(h.a.ctx))
	case !last:
		return nil
	}
	early := context.Cause(h.a.ctx)
	h.a.cancel(ErrUnlocked)
	err := h.m.unlock(ctx, h.a)
	if errors.Is(early, ErrMaxHold) {
		return errors.Join(fmt.Errorf("%w: %w", ErrLost, early), err)
	}
	return err
}

// holdContext is the context of a hold. Its Done and Value come from the context that the hold
// cancels, so that derived contexts end with it and context.Cause finds the cause.
type holdContext struct {
	context.Context
	a     *acquisition
	owner ownerKey
}

func newHoldContext(ctx context.Context, m *Manager, a *acquisition) *holdContext {
	return &holdContext{Context: ctx, a: a, owner: ownerKey{m: m, key: a.cfg.Key}}
}

// Err first ends the hold if its end has passed.
func (c *holdContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.a.over() {
		c.a.group.m.lose(c.a, ErrExpired)
	}
	if !c.a.live() {
		<-c.Done() // another goroutine has ended the hold, and cancels next
	}
	return c.Context.Err()
}

func (c *holdContext) Value(key any) any {
	if key == any(c.owner) {
		return c.a
	}
	return c.Context.Value(key)
}

// ownerKey finds the acquisition of a lock in the context of its holder.
type ownerKey struct {
	m   *Manager
	key string
}

// owner returns the hold that ctx belongs to, or nil.
func owner(ctx context.Context, m *Manager, key string) *acquisition {
	a, _ := ctx.Value(ownerKey{m: m, key: key}).(*acquisition)
	return a
}

// WithoutOwner returns ctx without the holds that it belongs to: locking with it waits even for a
// lock that the caller holds.
func WithoutOwner(ctx context.Context) context.Context { return strangerContext{ctx} }

type strangerContext struct{ context.Context }

func (c strangerContext) Value(key any) any {
	if _, ok := key.(ownerKey); ok {
		return nil
	}
	return c.Context.Value(key)
}
