package nodeagent

import (
	"github.com/freeslot/freeslot/internal/node/cgroup"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// Limits bound the process of a command together with all processes that it starts; 0 is none.
type Limits struct {
	// From 1048576. 0 is no limit.
	MemoryBytes int64 `koanf:"memory_bytes"`
	// CPU time by time such as 1.5, from 0.01. 0 is no limit.
	CPUs float64 `koanf:"cpus"`
	// Processes and threads at a time. 0 is no limit.
	PIDs int `koanf:"pids"`
}

func (l *Limits) group() cgroup.Limits {
	return cgroup.Limits{MemoryBytes: l.MemoryBytes, CPUs: l.CPUs, PIDs: l.PIDs}
}

func (c *Command) validateLimits(at string, p *config.Problems) {
	l := c.Limits
	at += ".limits"
	switch {
	case l == nil && c.LimitsRequired:
		p.Addf(at+"_required", "is set without limits, expected both or neither")
	case l == nil:
	case !cgroup.Supported:
		p.Addf(at, "is set, but limits are not supported on this system, only on Linux")
	case *l == Limits{} && !p.Has(at):
		p.Addf(at, "is empty, expected memory_bytes, cpus or pids")
	default:
		if l.MemoryBytes != 0 && (l.MemoryBytes < cgroup.MinMemoryBytes || l.MemoryBytes > cgroup.MaxMemoryBytes) {
			p.Addf(
				at+".memory_bytes", "is %d, expected %d to %d", l.MemoryBytes, cgroup.MinMemoryBytes, int64(cgroup.MaxMemoryBytes),
			)
		}
		// Negated, so that it refuses NaN too.
		if usable := l.CPUs >= cgroup.MinCPUs && l.CPUs <= cgroup.MaxCPUs; l.CPUs != 0 && !usable && !p.Has(at+".cpus") {
			p.Addf(at+".cpus", "is %v, expected %v to %v", l.CPUs, cgroup.MinCPUs, cgroup.MaxCPUs)
		}
		if l.PIDs != 0 {
			p.Between(at+".pids", l.PIDs, 1, cgroup.MaxPIDs)
		}
	}
}
