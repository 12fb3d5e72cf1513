package procgroup

import "syscall"

// Attr gives a command a group of its own, so that everything it starts ends with it. It also makes
// the kernel kill the command when its parent thread dies: a parent that was killed can no longer
// end the command, and what it holds for the command (a slot, a lock) will be given away. The
// thread must stay until the command has ended: see runtime.LockOSThread.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
