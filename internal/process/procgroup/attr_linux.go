package procgroup

import "syscall"

// Attr gives a command a group of its own, so that what it starts ends with it, and has the kernel
// kill the command when its parent thread dies: a parent that was killed itself cannot end the
// command any more, and what it has for the command (a slot, a lock) will be given away again. The
// thread must stay until the command has ended: see runtime.LockOSThread.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
