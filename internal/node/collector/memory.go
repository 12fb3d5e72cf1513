package collector

import (
	"context"

	"github.com/shirou/gopsutil/v4/mem"
)

// Memory collects "memory": usage, total_bytes, used_bytes, available_bytes, and
// host_usage where a cgroup limits the process.
type Memory struct{ group cgroup }

// NewMemory returns a collector for this machine.
func NewMemory() *Memory { return &Memory{} }

// Type is "memory".
func (*Memory) Type() string { return "memory" }

// Available is true.
func (*Memory) Available(context.Context) bool { return true }

// Cost is CostLow.
func (*Memory) Cost() Cost { return CostLow }

// Collect reads the figures of now.
func (m *Memory) Collect(ctx context.Context) (Metrics, error) {
	host, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return nil, err
	}
	total, available := host.Total, host.Available
	used := total - min(available, total)
	hostUsage := share(float64(used), float64(total))
	limit, limited := m.group.memory()
	// A limit above the machine's memory, such as version 1 has in place of none, limits nothing.
	if limited = limited && limit.total < total; limited {
		total, used = limit.total, min(limit.used, limit.total)
		// The group's room is of use only as far as the host has it.
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
