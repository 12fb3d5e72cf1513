//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package agent

import "syscall"

// childAttr gives a command a group of its own, so that what it starts ends with it.
// It does not tie the command to the agent, as on Linux.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
