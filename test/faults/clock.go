package faults

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns the time of a clock that all processes of the machine share, and that no one sets.
func Clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("faults: the machine has no monotonic clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}
