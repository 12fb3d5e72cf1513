package agent

import "syscall"

// childAttr gives a command a group of its own, so that what it starts ends with it,
// and has the kernel kill it when its parent thread dies: the agent cannot do it any
// more when it was killed itself, and the slot will be given away again.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
