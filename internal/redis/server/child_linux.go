package server

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttr makes the kernel kill the child when its parent thread dies. It uses SIGKILL because a
// paused server would never act on SIGTERM; an append-only file survives it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when the child has really stopped (or ended): a signal is delivered some
// time after kill(2) returned. WNOWAIT leaves the child's state to the goroutine that reaps it.
func awaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
