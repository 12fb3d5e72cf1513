package worker

import (
	"sync/atomic"
	"time"
)

// turnMargin is far longer than the calls of one turn of the heartbeats' loop may take.
const turnMargin = 30 * time.Second

// pulse is when the heartbeats' loop turned last; nil while it does not run. It uses the monotonic clock,
// so that a change of the machine's time does not make the loop seem stuck.
type pulse struct{ at atomic.Pointer[time.Time] }

func (p *pulse) turn() {
	now := time.Now()
	p.at.Store(&now)
}

func (p *pulse) rest() { p.at.Store(nil) }

// Alive reports whether the loop of heartbeats goes on. It is false only when the loop is stuck; an outage
// of Redis does not cause that. It is true before Start and after Stop, and does not wait.
func (w *Worker) Alive() bool {
	at := w.pulse.at.Load()
	return at == nil || time.Since(*at) < w.cfg.HeartbeatInterval+turnMargin
}
