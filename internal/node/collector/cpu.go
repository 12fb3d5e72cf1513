package collector

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/load"
)

// minSample is the shortest span for a usage: the kernel's processor counters tick every 10 ms.
const minSample = 500 * time.Millisecond

// CPU collects "cpu": usage, cores, load1, and host_usage if a cgroup limits the process. Usages
// cover the time since the last collection, so the first collection has none.
type CPU struct {
	builtIn
	machine *shared[cpuReading]
	// cores is the number of processors that the process may use.
	cores  int
	before cpuReading
	// usage and hostUsage cover the time between the last two readings; negative: unknown.
	usage, hostUsage float64
}

// cpuReading holds counters at one time.
type cpuReading struct {
	at      time.Time
	times   cpu.TimesStat
	limit   cpuLimit
	limited bool
	load    *load.AvgStat // nil if the system has none
}

var machineCPU = cpuBelow("")

// cpuBelow reads the limits below root, which is empty except in tests.
func cpuBelow(root string) *shared[cpuReading] {
	group := &groupLimits{root: root}
	return &shared[cpuReading]{read: func(ctx context.Context) (r cpuReading, err error) {
		times, err := cpu.TimesWithContext(ctx, false)
		if err == nil && len(times) != 1 {
			err = errors.New("the system has no processor times")
		}
		if err != nil {
			return r, err
		}
		r.at, r.times = time.Now(), times[0]
		r.limit, r.limited = group.cpu()
		if runtime.GOOS != "windows" { // on Windows the call starts a goroutine for good
			r.load, _ = load.AvgWithContext(ctx)
		}
		return r, nil
	}}
}

// NewCPU returns a collector for this machine.
func NewCPU() *CPU {
	return &CPU{
		builtIn: builtIn{"cpu", CostLow, []string{"usage", "cores", "load1", "host_usage"}}, cores: runtime.NumCPU(),
		machine: machineCPU, usage: -1, hostUsage: -1,
	}
}

// Collect reads the counters and compares them with the last ones.
func (c *CPU) Collect(ctx context.Context) (Metrics, error) {
	now, err := c.machine.take(ctx)
	if err != nil {
		return nil, err
	}
	if now.limited = now.limited && now.limit.cores > 0 && now.limit.cores < float64(c.cores); !now.limited {
		now.limit = cpuLimit{}
	}
	c.take(now)

	figures := Metrics{"cores": float64(c.cores)}
	if now.limited {
		figures["cores"] = rounded(now.limit.cores)
	}
	if c.usage >= 0 {
		figures["usage"] = c.usage
	}
	if now.limited && c.hostUsage >= 0 {
		figures["host_usage"] = c.hostUsage
	}
	if now.load != nil {
		figures["load1"] = rounded(now.load.Load1)
	}
	return figures, nil
}

// take computes the usages since the last reading.
func (c *CPU) take(now cpuReading) {
	before := c.before
	if !before.at.IsZero() && now.at.Sub(before.at) < minSample {
		return
	}
	c.before = now
	c.usage, c.hostUsage = -1, -1
	if before.at.IsZero() {
		return
	}
	c.hostUsage = busy(before.times, now.times)
	c.usage = c.hostUsage
	if now.limit.folder != "" {
		c.usage = now.limit.usage(before.limit, now.at.Sub(before.at))
	}
}

// usage returns the share of the quota that was used since before; negative: unknown.
func (l cpuLimit) usage(before cpuLimit, elapsed time.Duration) float64 {
	if l.folder != before.folder || l.used < before.used {
		return -1
	}
	return share(l.used-before.used, elapsed.Seconds()*l.cores)
}

// busy returns the share of processor time between two readings that was not idle; negative:
// unknown.
func busy(before, after cpu.TimesStat) float64 {
	total := sum(after) - sum(before)
	if total <= 0 {
		return -1
	}
	idle := after.Idle + after.Iowait - before.Idle - before.Iowait
	return share(total-idle, total)
}

// sum adds up the times without guest times, which Linux counts as user times too.
func sum(t cpu.TimesStat) float64 {
	return t.User + t.System + t.Idle + t.Nice + t.Iowait + t.Irq + t.Softirq + t.Steal
}
