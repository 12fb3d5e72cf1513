// Package heartbeat decides what is sent when by something that must prove that it lives and
// tells figures of itself: a heartbeat alone, the figures too, or nothing.
//
// It is the strategy of the service registry's design, and has its words:
//
//   - HEARTBEAT_ONLY moves the time of the last heartbeat ("仅更新心跳时间戳"). It is due
//     heartbeat-interval after the last heartbeat.
//   - METADATA_UPDATE brings the figures and is a heartbeat ("更新metadata + 心跳时间戳"). It is
//     due metadata-interval after the last one, and at once when a figure has changed by its
//     threshold (absolute, percent, any) since it was told last, unless
//     immediate-update-on-significant-change is off: then with the next heartbeat.
//   - Metadata is looked at first, and resets the heartbeat's time, so that nothing is told twice.
//   - While one is under way (the design's pendingHeartbeat) nothing else is.
//   - What failed is due again, as what it was: the store may or may not have it.
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
// and pauses between failed tries are the loop's own.
package heartbeat
