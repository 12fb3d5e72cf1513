package lock

import (
	"context"
	"time"
)

// settlePoll is how often Settle looks.
const settlePoll = 5 * time.Millisecond

// Settle waits until Redis has carried out every Unlock whose answer did not come, and every one
// after a loss, or ctx ends. It is for programs that end: Stop leaves such locks to run out.
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
		g.debts.mu.Lock()
		open := len(g.debts.open)
		g.debts.mu.Unlock()
		if open > 0 {
			return true
		}
	}
	return false
}
