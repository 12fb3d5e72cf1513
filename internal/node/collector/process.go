package collector

import (
	"context"
	"os"
	"runtime"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// Process collects "process", the figures of this process: goroutines, heap_bytes (Go's live and
// dead objects), rss_bytes, open_fds, uptime_seconds and cpu_usage. cpu_usage is the process'
// share, since the last collection, of the processors that it may use, so the first collection has
// none.
type Process struct {
	builtIn
	self  *process.Process
	group groupLimits
	cores int
	// before is the last reading of processor time; zero if there is none.
	before processReading
	// usage covers the time between the last two readings; negative: unknown.
	usage float64
}

// processReading is the processor time that the process had used, in seconds.
type processReading struct {
	at   time.Time
	used float64
}

// NewProcess returns a collector for this process.
func NewProcess() *Process {
	return &Process{
		builtIn: builtIn{
			"process", CostLow, []string{"goroutines", "heap_bytes", "cpu_usage", "rss_bytes", "open_fds", "uptime_seconds"},
		},
		cores: runtime.NumCPU(), usage: -1,
	}
}

// Collect returns the present figures. Figures that the system does not have are absent.
func (p *Process) Collect(ctx context.Context) (Metrics, error) {
	heap := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(heap)
	figures := Metrics{"goroutines": runtime.NumGoroutine(), "heap_bytes": bytesOf(heap[0].Value.Uint64())}
	if p.self == nil {
		self, err := process.NewProcessWithContext(ctx, int32(os.Getpid()))
		if err != nil {
			return figures, err
		}
		p.self = self
	}
	if times, err := p.self.TimesWithContext(ctx); err == nil {
		cores := float64(p.cores)
		if limit, limited := p.group.cpu(); limited && limit.cores > 0 {
			cores = min(cores, limit.cores)
		}
		p.take(processReading{time.Now(), times.User + times.System}, cores)
		if p.usage >= 0 {
			figures["cpu_usage"] = p.usage
		}
	}
	memory, err := p.self.MemoryInfoWithContext(ctx)
	if err != nil {
		return figures, err
	}
	figures["rss_bytes"] = bytesOf(memory.RSS)
	if n, err := p.self.NumFDsWithContext(ctx); err == nil {
		figures["open_fds"] = int(n)
	}
	if created, err := p.self.CreateTimeWithContext(ctx); err == nil {
		figures["uptime_seconds"] = int64(max(time.Since(time.UnixMilli(created)), 0) / time.Second)
	}
	return figures, nil
}

// take computes the usage since the last reading.
func (p *Process) take(now processReading, cores float64) {
	before := p.before
	if !before.at.IsZero() && now.at.Sub(before.at) < minSample {
		return
	}
	if p.before = now; before.at.IsZero() {
		return
	}
	p.usage = share(now.used-before.used, now.at.Sub(before.at).Seconds()*cores)
}
