//go:build !linux

package cgroup

import (
	"syscall"
)

// Supported is true if the system can have control groups.
const Supported = false

// Manager does not work on this system.
type Manager struct{}

// Open returns ErrUnsupported.
func Open() (*Manager, error) { return nil, ErrUnsupported }

// Supports returns ErrUnsupported.
func (*Manager) Supports(Limits) error { return ErrUnsupported }

// Create returns ErrUnsupported.
func (*Manager) Create(string, Limits) (*Group, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Manager) Close() error { return nil }

// Group does not work on this system.
type Group struct{}

// Attach does nothing.
func (*Group) Attach(*syscall.SysProcAttr) {}

// Started returns ErrUnsupported.
func (*Group) Started(int) error { return ErrUnsupported }

// OutOfMemory returns false.
func (*Group) OutOfMemory() bool { return false }

// Kill returns ErrUnsupported.
func (*Group) Kill() error { return ErrUnsupported }

// Remove returns ErrUnsupported.
func (*Group) Remove() error { return ErrUnsupported }
