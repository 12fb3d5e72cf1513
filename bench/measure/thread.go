//go:build unix

package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// ThreadTime is the processor time of the calling thread. The caller has locked its goroutine to
// it.
func ThreadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // this clock is always there
	}
	return time.Duration(t.Nano())
}
