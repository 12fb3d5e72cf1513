package worker

import "time"

// turnMargin is far longer than the calls of one turn of the heartbeat loop may take.
const turnMargin = 30 * time.Second

func (w *Worker) turn() {
	now := time.Now()
	w.turned.Store(&now)
}

// Alive reports whether the heartbeat loop goes on. It is false only if the loop is stuck; an
// outage of Redis does not cause that. It is true before Start and after Stop, and does not wait.
func (w *Worker) Alive() bool {
	at := w.turned.Load()
	return at == nil || time.Since(*at) < w.cfg.HeartbeatInterval+turnMargin
}
