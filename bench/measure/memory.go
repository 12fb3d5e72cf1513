package measure

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Resident is the process' resident memory in MiB, from /proc.
func (p *Process) Resident() (float64, error) { return p.memory("VmRSS:") }

// Anonymous is the part of Resident that is of no file, such as a library.
func (p *Process) Anonymous() (float64, error) { return p.memory("RssAnon:") }

// PeakResident is the most that Resident has been since the process' start, by the kernel's count.
func (p *Process) PeakResident() (float64, error) { return p.memory("VmHWM:") }

func (p *Process) memory(field string) (mib float64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc has no %s", field)
}

// HighestResident reads the resident memory at this interval until ctx ends, and returns the
// highest value.
func (p *Process) HighestResident(ctx context.Context, every time.Duration) (float64, error) {
	for highest := 0.0; ; {
		mib, err := p.Resident()
		if err != nil {
			return 0, err
		}
		highest = max(highest, mib)
		if SleepUntil(ctx, time.Now().Add(every)) != nil {
			return highest, nil
		}
	}
}

// LiveHeap is this process' in bytes, after a collection.
func LiveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// Allocations counts those of all goroutines meanwhile.
func Allocations(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
