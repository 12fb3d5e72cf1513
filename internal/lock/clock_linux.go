package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns the time of a clock that keeps running while the machine sleeps. Go's monotonic
// clock stops then, and would let a holder believe in a lease that is over.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("lock: this kernel has no CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(t.Nano())
}
