package worker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/heartbeat"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/process/version"
)

// Collectors of figures; see [Worker.Collect].
type (
	// Collector collects the figures of one type.
	Collector = collector.Collector
	// Metrics are figures by field: float64, int64, int, bool or string.
	Metrics = collector.Metrics
	// Cost tells how much a collection burdens the machine, and so how often one is made.
	Cost = collector.Cost
	// Collection is a collector with its interval and time limit. If one of them is zero, the
	// collector's cost decides.
	Collection = collector.Entry
)

// The costs.
const (
	CostLow    = collector.CostLow
	CostMedium = collector.CostMedium
	CostHigh   = collector.CostHigh
)

// Thresholds of figures; see Config.Thresholds.
type (
	// Threshold decides which changes of a figure are significant.
	Threshold = heartbeat.Threshold
	// ThresholdKind tells how the change is measured.
	ThresholdKind = heartbeat.ThresholdKind
)

// The kinds of thresholds.
const (
	// Absolute: the difference reaches the value.
	Absolute = heartbeat.Absolute
	// Percent: the difference reaches the value, in percent of the figure that was sent last.
	Percent = heartbeat.Percent
	// AnyChange: every change counts.
	AnyChange = heartbeat.Any
)

// DefaultCollectors collect the machine's memory and CPU time, limited to what the process's
// control group allows it to use.
func DefaultCollectors() []Collection {
	return []Collection{{Collector: collector.NewMemory()}, {Collector: collector.NewCPU()}}
}

// The collectors of nodeagent, for Config.Collectors and [Worker.Collect]; docs/nodeagent.md lists
// their figures. Package worker/gpu has the collector for graphics processors.

// MemoryCollector and CPUCollector collect "memory" and "cpu" of the machine or the control group.
func MemoryCollector() Collector { return collector.NewMemory() }

// CPUCollector is documented with MemoryCollector.
func CPUCollector() Collector { return collector.NewCPU() }

// DiskCollector collects "disk" for the file systems that hold the paths, at most 16; none means
// "/".
func DiskCollector(paths ...string) Collector { return collector.NewDisk(paths...) }

// NetworkCollector collects "network" for the named interfaces; none means all except the loopback.
func NetworkCollector(interfaces ...string) Collector { return collector.NewNetwork(interfaces...) }

// ProcessCollector collects "process", the figures of this process.
func ProcessCollector() Collector { return collector.NewProcess() }

// RedisCollector collects "redis": the duration of w's last heartbeat. It costs Redis nothing.
func RedisCollector(w *Worker) Collector { return collector.NewRedisLatency(w.RedisLatency) }

// DefaultThresholds returns a tenth of the memory and a fifth of the CPU time.
func DefaultThresholds() map[string]Threshold {
	return map[string]Threshold{
		"memory.usage": {Kind: Absolute, Value: 0.1},
		"cpu.usage":    {Kind: Absolute, Value: 0.2},
	}
}

// Collect adds a collector, with the interval and the time limit of its cost. No heartbeat ever
// waits for it: while it is slow, heartbeats bring its last figures, for three intervals. Collect
// panics, like Handle, on mistakes in the program: a nil c, an invalid type, a second collector of
// a type, and any call after Start.
func (w *Worker) Collect(c Collector) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c == nil {
		panic("worker: Collect: nil collector")
	}
	if w.state != idle {
		panic("worker: Collect after Start: " + c.Type())
	}
	entries := append(slices.Clip(w.cfg.Collectors), Collection{Collector: c})
	if err := checkCollectors(entries); err != nil {
		panic(fmt.Sprintf("worker: Collect: %v", err))
	}
	w.cfg.Collectors = entries
}

func checkCollectors(entries []Collection) error {
	_, err := collector.New(entries, nil, nil)
	return err
}

func (w *Worker) resources(figures collector.Snapshot, taken map[string]time.Time) json.RawMessage {
	ages := make(map[string]int64, len(taken))
	for name, at := range taken {
		ages[name] = time.Since(at).Milliseconds()
	}
	reason := ""
	if l := w.leaving.Load(); l != nil {
		reason = l.reason
	}
	raw, _ := json.Marshal(collector.Resources{ // never fails: a snapshot has only values of JSON
		RunMS: w.ledger.ran(time.Now()).Milliseconds(), Leaving: reason,
		AgesMS: ages, CPUUsage: usage(figures["cpu"]), MemoryUsage: usage(figures["memory"]),
		CurrentJobs: int(w.handling.Load()), MaxConcurrency: int(w.profile.slots.Load()), Build: version.String(),
		Metrics: figures,
	})
	return raw
}

func usage(m Metrics) *float64 {
	v, ok := m["usage"].(float64)
	if !ok {
		return nil
	}
	return &v
}
