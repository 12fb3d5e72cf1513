//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package agent

import "syscall"

// childAttr gives a command a group of its own, so that its children end with it. Unlike on Linux,
// the command may outlive the agent.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
