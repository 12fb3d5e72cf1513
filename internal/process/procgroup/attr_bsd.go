//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package procgroup

import "syscall"

// Attr gives a command a group of its own, so that everything it starts ends with it. It does not
// tie the command to this process, as on Linux.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
