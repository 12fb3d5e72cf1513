package conformance

import "syscall"

// childAttr has the kernel kill the child when this process dies.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
