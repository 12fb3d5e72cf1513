package procgroup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// AwaitExit returns when the child has ended, and leaves it a zombie.
func AwaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return // ended, or no longer a child: Wait returns which
		}
	}
}
