package lock

import "time"

// Left returns how long the hold lasts if no further renewal is confirmed; 0 once it has ended.
func (h *Held) Left() time.Duration {
	if h.ctx.Err() != nil {
		return 0
	}
	return max(0, time.Duration(h.a.until.Load())-uptime())
}
