package worker

import (
	"context"
	"encoding/json"
	"math"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"
)

// minSampleInterval: over shorter spans the kernel's CPU counters, which tick every
// 10 ms, say little.
const minSampleInterval = time.Second

// resources is what a heartbeat says of the machine: of the host, also inside a container.
type resources struct {
	// CPUUsage and MemoryUsage are between 0 and 1. Absent until they are known
	// and where the platform does not tell them.
	CPUUsage       *float64 `json:"cpu_usage,omitempty"`
	MemoryUsage    *float64 `json:"memory_usage,omitempty"`
	CurrentJobs    int      `json:"current_jobs"`
	MaxConcurrency int      `json:"max_concurrency"`
}

// sampler reads the machine's figures in its own time, so that a heartbeat never
// waits for them.
type sampler struct {
	interval time.Duration
	latest   atomic.Pointer[resources]
	// times is the last reading of the CPU counters; only run's goroutine uses it.
	times *cpu.TimesStat
}

func newSampler(interval time.Duration) *sampler {
	s := &sampler{interval: interval}
	s.latest.Store(&resources{})
	return s
}

func (s *sampler) run(ctx context.Context) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		s.sample(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *sampler) sample(ctx context.Context) {
	var r resources
	if v, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		r.MemoryUsage = share(v.UsedPercent / 100)
	}
	if t, err := cpu.TimesWithContext(ctx, false); err == nil && len(t) == 1 {
		if s.times != nil {
			r.CPUUsage = busy(*s.times, t[0])
		}
		s.times = &t[0]
	}
	s.latest.Store(&r)
}

// resources returns the figures as a JSON object.
func (s *sampler) resources(jobs, maxConcurrency int) json.RawMessage {
	r := *s.latest.Load()
	r.CurrentJobs, r.MaxConcurrency = jobs, maxConcurrency
	raw, err := json.Marshal(r)
	if err != nil {
		return nil // not reached: share lets no NaN or infinity through
	}
	return raw
}

// busy is the share of CPU time between two readings that was not idle.
func busy(before, after cpu.TimesStat) *float64 {
	total := sum(after) - sum(before)
	if total <= 0 {
		return nil
	}
	idle := after.Idle + after.Iowait - before.Idle - before.Iowait
	return share(1 - idle/total)
}

// sum leaves out guest times, which Linux counts as user times too.
func sum(t cpu.TimesStat) float64 {
	return t.User + t.System + t.Idle + t.Nice + t.Iowait + t.Irq + t.Softirq + t.Steal
}

// share rounds to a thousandth and cuts to 0..1.
func share(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	v = math.Round(min(max(v, 0), 1)*1000) / 1000
	return &v
}
