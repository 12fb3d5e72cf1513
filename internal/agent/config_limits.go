package agent

import (
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/node/cgroup"
)

// Limits bound one process of a command and all that it starts, together; 0 is none.
type Limits struct {
	MemoryBytes int64 `koanf:"memory_bytes"`
	// CPUs is CPU time by time, such as 1.5.
	CPUs float64 `koanf:"cpus"`
	// PIDs is how many processes and threads there can be at a time.
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
			p.Addf(at+".memory_bytes", "is %d, expected %d to %d", l.MemoryBytes, cgroup.MinMemoryBytes, int64(cgroup.MaxMemoryBytes))
		}
		// So that NaN is refused too.
		if usable := l.CPUs >= cgroup.MinCPUs && l.CPUs <= cgroup.MaxCPUs; l.CPUs != 0 && !usable && !p.Has(at+".cpus") {
			p.Addf(at+".cpus", "is %v, expected %v to %v", l.CPUs, cgroup.MinCPUs, cgroup.MaxCPUs)
		}
		if l.PIDs != 0 {
			p.Between(at+".pids", l.PIDs, 1, cgroup.MaxPIDs)
		}
	}
}
