//go:build unix

package main

import "syscall"

// raise gives a process more of the processors than the others get.
func raise(pid int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, pid, raisedNice) }
