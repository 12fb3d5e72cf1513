package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// contactLeastGap is more than the delay of calls and of the clock of Nodes.Now.
const contactLeastGap = 100 * time.Millisecond

// contact records since when a cell has taken writes without a break, by the clock of Nodes.Now. A
// cell that only answers reads takes no heartbeats, so its nodes would seem silent. The zero value
// means no contact. It is safe for concurrent use; one goroutine makes and loses it.
type contact struct{ at atomic.Pointer[proofs] }

// proofs describes an unbroken series of calls that wrote: when the first was answered, and when
// the last was sent.
type proofs struct{ since, sent int64 }

// made records a call that was sent and is answered now. The cell may have been away ever since the
// call before was sent. If that was longer than gap ago, contact starts again.
func (c *contact) made(sent, now int64, gap time.Duration) {
	since := now
	if last := c.at.Load(); last != nil && now-last.sent <= int64(gap) {
		since = last.since
	}
	c.at.Store(&proofs{since: since, sent: sent})
}

func (c *contact) lost() { c.at.Store(nil) }

// lasts returns how long the contact has lasted. It returns 0 if no call was sent within gap and
// answered.
func (c *contact) lasts(now int64, gap time.Duration) time.Duration {
	last := c.at.Load()
	if last == nil || now-last.sent > int64(gap) {
		return 0
	}
	return time.Duration(now - last.since)
}

// cellSet is a set of cells. It is safe for concurrent use.
type cellSet struct{ mask atomic.Uint64 }

func (s *cellSet) load() selection.CellMask { return selection.CellMask(s.mask.Load()) }

// set adds or removes a cell, and reports whether that changed the set.
func (s *cellSet) set(cell int, in bool) bool {
	bit := uint64(1) << uint(cell)
	if in {
		return s.mask.Or(bit)&bit == 0
	}
	return s.mask.And(^bit)&bit != 0
}
