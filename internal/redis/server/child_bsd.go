//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package server

import "syscall"

// childAttr cannot tie the child to this process: these kernels have no parent-death signal.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped does not wait: the signal is on its way.
func awaitStopped(int) error {
	return nil
}
