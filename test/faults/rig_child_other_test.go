//go:build !linux

package faults

import "syscall"

// childAttr cannot tie the child to this process.
func childAttr() *syscall.SysProcAttr { return nil }
