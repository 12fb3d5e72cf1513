//go:build !linux

package lock

import "time"

var started = time.Now()

// uptime is Go's monotonic clock. Where it stands still while the machine sleeps, only tokens
// protect a resource from a holder that wakes up.
func uptime() time.Duration { return time.Since(started) }
