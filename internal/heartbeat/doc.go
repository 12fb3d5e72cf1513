// Package heartbeat decides what a sender sends and when, to prove that it lives and to report its
// figures: a heartbeat alone, the figures too, or nothing.
//
// It has these rules:
//
//   - HEARTBEAT_ONLY moves the time of the last heartbeat. It is due heartbeat-interval after the
//     last heartbeat.
//   - METADATA_UPDATE brings the figures and is a heartbeat. It is due metadata-interval after the
//     last one, and at once when a figure has changed by its threshold (absolute, percent, any)
//     since it was sent last. If immediate-update-on-significant-change is off, it is then due with
//     the next heartbeat.
//   - A metadata update comes before a heartbeat and resets the heartbeat's time, so that nothing
//     is sent twice.
//   - While one is under way, nothing else is due.
//   - A failed one is due again, with the same content: the store may or may not have it.
//
// The package is pure: no clock, no goroutine, no I/O. The caller's loop is
//
//	decision := d.Decide(now, metrics)
//	if decision != heartbeat.None {
//		d.Begin(decision, now, metrics)
//		… send, then d.Succeeded() or d.Failed()
//	}
//	… wait for d.Next(now, metrics), or until the metrics have changed
//
// and decides itself how long to pause between failed tries.
package heartbeat
