//go:build unix

// Package procgroup runs a command in a process group of its own, so that what the command starts
// ends with it.
//
// Until [exec.Cmd.Wait] has returned the group's leader exists, if only as a zombie. So its id
// cannot have become another group's, and the group may be signalled.
package procgroup

import (
	"errors"
	"syscall"
	"time"
)

// gonePoll is how often AwaitGone looks.
const gonePoll = time.Millisecond

// Signal sends a signal to a group, which the process id of its leader names.
func Signal(leader int, signal syscall.Signal) {
	_ = syscall.Kill(-leader, signal) // it fails only if no process of it is left
}

// AwaitGone returns true once no process is left of a group whose leader was waited for, or false
// after limit. The group's other processes are not children of this process, or Main waits for
// them, so nothing signals their end.
func AwaitGone(leader int, limit time.Duration) bool {
	for end := time.Now().Add(limit); ; time.Sleep(gonePoll) {
		if errors.Is(syscall.Kill(-leader, 0), syscall.ESRCH) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
