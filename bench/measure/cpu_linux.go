package measure

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// schedulerClock is the kind of a process' clock that counts user and system time in nanoseconds.
const schedulerClock = 2

// CPUSeconds is the time, user and system, that a process has used of all processors.
func CPUSeconds(pid int) (float64, error) {
	var t unix.Timespec
	// This is the number that clock_getcpuclockid(3) gives the clock of a process.
	if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &t); err != nil {
		return 0, fmt.Errorf("clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}
