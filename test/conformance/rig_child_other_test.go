//go:build !linux

package conformance

import "syscall"

// childAttr cannot tie the child to this process.
func childAttr() *syscall.SysProcAttr { return nil }
