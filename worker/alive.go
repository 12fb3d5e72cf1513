package worker

import (
	"sync/atomic"
	"time"
)

// turnMargin is far more than the calls of one turn of the heartbeats' loop may take.
const turnMargin = 30 * time.Second

// pulse is when the heartbeats' loop turned last, in nanoseconds since 1970; 0 while it does not run.
type pulse struct{ at atomic.Int64 }

func (p *pulse) turn() { p.at.Store(time.Now().UnixNano()) }

func (p *pulse) rest() { p.at.Store(0) }

// Alive reports whether the loop that speaks for the node goes on: false only where it is stuck, which no outage of
// Redis makes it. It is true before Start and after Stop, and does not wait.
func (w *Worker) Alive() bool {
	at := w.pulse.at.Load()
	return at == 0 || time.Since(time.Unix(0, at)) < w.cfg.HeartbeatInterval+turnMargin
}
