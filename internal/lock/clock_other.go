//go:build !linux

package lock

import "time"

var started = time.Now()

// uptime returns the time of Go's monotonic clock. If that clock stops while the machine sleeps,
// only tokens protect a resource from a holder that wakes up.
func uptime() time.Duration { return time.Since(started) }
