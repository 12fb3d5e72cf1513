package collector

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// Process collects "process", the figures of this process: goroutines, rss_bytes, open_fds and
// uptime_seconds.
type Process struct {
	builtIn
	self *process.Process
}

// NewProcess returns a collector for this process.
func NewProcess() *Process {
	return &Process{builtIn: builtIn{"process", CostLow, []string{"goroutines", "rss_bytes", "open_fds", "uptime_seconds"}}}
}

// Collect reads the present figures. Those that the system does not have are absent.
func (p *Process) Collect(ctx context.Context) (Metrics, error) {
	figures := Metrics{"goroutines": runtime.NumGoroutine()}
	if p.self == nil {
		self, err := process.NewProcessWithContext(ctx, int32(os.Getpid()))
		if err != nil {
			return figures, err
		}
		p.self = self
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
