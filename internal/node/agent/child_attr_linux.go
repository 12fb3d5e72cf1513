package agent

import "syscall"

// childAttr gives a command a group of its own, so that its children end with it. The kernel kills
// the command when its parent thread dies: a killed agent cannot do that, and Redis gives the slot
// to another job.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
