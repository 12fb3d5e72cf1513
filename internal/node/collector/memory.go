package collector

import (
	"context"

	"github.com/shirou/gopsutil/v4/mem"
)

// Memory collects "memory": usage, total_bytes, used_bytes, available_bytes, and host_usage if a
// cgroup limits the process.
type Memory struct {
	builtIn
	group groupLimits
}

// NewMemory returns a collector for this machine.
func NewMemory() *Memory {
	return &Memory{builtIn: builtIn{
		"memory", CostLow, []string{"usage", "total_bytes", "used_bytes", "available_bytes", "host_usage"},
	}}
}

// Collect reads the present figures.
func (m *Memory) Collect(ctx context.Context) (Metrics, error) {
	host, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return nil, err
	}
	total, available := host.Total, host.Available
	used := total - min(available, total)
	hostUsage := share(float64(used), float64(total))
	limit, limited := m.group.memory()
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
