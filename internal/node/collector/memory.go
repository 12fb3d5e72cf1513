package collector

import (
	"context"

	"github.com/shirou/gopsutil/v4/mem"
)

// Memory collects "memory": usage, total_bytes, used_bytes, available_bytes, and host_usage if a
// cgroup limits the process.
type Memory struct {
	builtIn
	machine *shared[memoryReading]
}

// memoryReading is the memory of the host and the limit of the process.
type memoryReading struct {
	total, available uint64
	limit            memoryLimit
	limited          bool
}

var machineMemory = memoryBelow("")

// memoryBelow reads the limits below root, which is empty except in tests.
func memoryBelow(root string) *shared[memoryReading] {
	group := &groupLimits{root: root}
	return &shared[memoryReading]{read: func(ctx context.Context) (r memoryReading, err error) {
		host, err := mem.VirtualMemoryWithContext(ctx)
		if err != nil {
			return r, err
		}
		r.total, r.available = host.Total, host.Available
		r.limit, r.limited = group.memory()
		return r, nil
	}}
}

// NewMemory returns a collector for this machine.
func NewMemory() *Memory {
	return &Memory{builtIn: builtIn{
		"memory", CostLow, []string{"usage", "total_bytes", "used_bytes", "available_bytes", "host_usage"},
	}, machine: machineMemory}
}

// Collect reads the present figures.
func (m *Memory) Collect(ctx context.Context) (Metrics, error) {
	now, err := m.machine.take(ctx)
	if err != nil {
		return nil, err
	}
	total, available := now.total, now.available
	used := total - min(available, total)
	hostUsage := share(float64(used), float64(total))
	limit, limited := now.limit, now.limited
	// A limit above the machine's memory limits nothing; version 1 has such a limit if none is set.
	if limited = limited && limit.total < total; limited {
		total, used = limit.total, min(limit.used, limit.total)
		// The group can use its room only as far as the host has memory.
		available = min(total-used, available)
	}
	figures := Metrics{
		"usage":           share(float64(used), float64(total)),
		"total_bytes":     bytesOf(total),
		"used_bytes":      bytesOf(used),
		"available_bytes": bytesOf(available),
	}
	if limited {
		figures["host_usage"] = hostUsage
	}
	return figures, nil
}
