package cgroup

import (
	"errors"
	"time"
)

// ErrUnsupported is returned by Open on systems without control groups.
var ErrUnsupported = errors.New("limits are not supported on this system")

// The bounds of Limits.
const (
	// MinMemoryBytes is less than any program needs to start.
	MinMemoryBytes = 1 << 20
	MaxMemoryBytes = 1 << 50
	// MinCPUs is the least that the kernel takes: 1 ms in 100 ms.
	MinCPUs = 0.01
	MaxCPUs = 4096
	MaxPIDs = 1 << 22
)

// Limits holds the limits of one group; 0 is none.
type Limits struct {
	// MemoryBytes bounds the memory of all processes of the group together. Pages of files that
	// cannot be dropped count too. The processes get no swap.
	MemoryBytes int64
	// CPUs is CPU time by time: 0.5 is half of one CPU.
	CPUs float64
	// PIDs bounds the processes and threads at a time.
	PIDs int
}

const (
	// patience is how long processes may take to end after SIGKILL. A process that waits for a
	// broken disk can take longer.
	patience = 2 * time.Second
	// EndLimit is the longest time that Kill and Remove take together.
	EndLimit = 4 * patience
)

// The controllers, by the kernel's names.
const (
	memory = "memory"
	cpu    = "cpu"
	pids   = "pids"
)

// needs returns the controllers of the limits that are set.
func (l Limits) needs() []string {
	var names []string
	if l.MemoryBytes > 0 {
		names = append(names, memory)
	}
	if l.CPUs > 0 {
		names = append(names, cpu)
	}
	if l.PIDs > 0 {
		names = append(names, pids)
	}
	return names
}
