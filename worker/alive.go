package worker

import (
	"sync/atomic"
	"time"
)

// turnMargin is far more than the calls of one turn of the heartbeats' loop may take.
const turnMargin = 30 * time.Second

// pulse is when the heartbeats' loop turned last; nil while it does not run. It is of the monotonic
// clock: that the machine's time is set is no reason to take the loop for stuck.
type pulse struct{ at atomic.Pointer[time.Time] }

func (p *pulse) turn() {
	now := time.Now()
	p.at.Store(&now)
}

func (p *pulse) rest() { p.at.Store(nil) }

// Alive reports whether the loop that speaks for the node goes on: false only where it is stuck, which no outage of
// Redis makes it. It is true before Start and after Stop, and does not wait.
func (w *Worker) Alive() bool {
	at := w.pulse.at.Load()
	return at == nil || time.Since(*at) < w.cfg.HeartbeatInterval+turnMargin
}
