//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package procgroup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// AwaitExit returns when the child has ended, and leaves it a zombie.
func AwaitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return // Wait will wait; only children of the command may outlive it
	}
	defer unix.Close(queue) //nolint:errcheck // nothing can be done about it
	change := make([]unix.Kevent_t, 1)
	unix.SetKevent(&change[0], pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change[0].Fflags = unix.NOTE_EXIT
	event := make([]unix.Kevent_t, 1)
	for {
		_, err := unix.Kevent(queue, change, event, nil)
		if !errors.Is(err, unix.EINTR) {
			return // ended, also before it could be watched
		}
	}
}
