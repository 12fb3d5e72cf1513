package lock

import (
	"context"
	"time"
)

// settlePoll is how often Settle looks.
const settlePoll = 5 * time.Millisecond

// Settle waits until Redis has answered every Unlock whose answer is missing, and every release
// after a loss, or until the leases of these locks are over, or until ctx ends. Programs call it
// before Stop, which leaves such locks to run out.
func (m *Manager) Settle(ctx context.Context) error {
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for m.owes() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return ErrClosed
		}
	}
	return nil
}

func (m *Manager) owes() bool {
	for _, g := range m.groups {
		if g.owes() {
			return true
		}
	}
	return false
}

// owes reports whether Redis has not answered a release yet. A release that is repeated only
// because a call in doubt may come late does not count: waiting for it would take as long as the
// lease.
func (g *group) owes() bool {
	g.debts.mu.Lock()
	defer g.debts.mu.Unlock()
	for _, d := range g.debts.open {
		if !d.answered {
			return true
		}
	}
	return false
}
