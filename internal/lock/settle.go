package lock

import (
	"context"
	"time"
)

// settlePoll is how often Settle looks.
const settlePoll = 5 * time.Millisecond

// Settle waits until Redis has answered to every Unlock whose answer did not come, and to every one
// after a loss, until their leases are over, or until ctx ends. It is for programs that end: Stop
// leaves such locks to run out.
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

// owes reports whether Redis has not answered to a release. One that is repeated only in case a
// call in doubt comes late does not count: waiting for it takes as long as the lease.
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
