package worker

import (
	"encoding/json"
	"fmt"

	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/node/heartbeat"
)

// Collectors of figures; see [Worker.Collect].
type (
	// Collector collects the figures of one type.
	Collector = collector.Collector
	// Metrics are figures by field: float64, int64, int, bool or string.
	Metrics = collector.Metrics
	// Cost says how much a collection asks of the machine, and so how often it is made.
	Cost = collector.Cost
	// Collection is a collector with its interval and time limit; zero ones are those of
	// its cost.
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
	// Threshold says which changes of a figure are significant.
	Threshold = heartbeat.Threshold
	// ThresholdKind is how the change is measured.
	ThresholdKind = heartbeat.ThresholdKind
)

// The kinds of thresholds.
const (
	// Absolute: the difference reaches the value.
	Absolute = heartbeat.Absolute
	// Percent: the difference reaches the value, in percent of what was told.
	Percent = heartbeat.Percent
	// AnyChange: every change counts.
	AnyChange = heartbeat.Any
)

// DefaultCollectors are the machine's memory and CPU time, as their control group limits them.
func DefaultCollectors() []Collection {
	return []Collection{{Collector: collector.NewMemory()}, {Collector: collector.NewCPU()}}
}

// DefaultThresholds are a tenth of the memory and a fifth of the CPU time.
func DefaultThresholds() map[string]Threshold {
	return map[string]Threshold{
		"memory.usage": {Kind: Absolute, Value: 0.1},
		"cpu.usage":    {Kind: Absolute, Value: 0.2},
	}
}

// Collect has the figures of c collected too, with the interval and the time limit of its
// cost, and told with those of the other collectors. Whatever c does, no heartbeat waits
// for it: while it is slow its last figures are told, for three intervals. It panics, like
// Handle, on what can only be a mistake in the program: a nil c, an invalid type, a second
// collector of a type, and any call after Start.
func (w *Worker) Collect(c Collector) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c == nil {
		panic("worker: Collect: nil collector")
	}
	if w.state != idle {
		panic("worker: Collect after Start: " + c.Type())
	}
	entries := append(w.cfg.Collectors[:len(w.cfg.Collectors):len(w.cfg.Collectors)], Collection{Collector: c})
	if err := checkCollectors(entries); err != nil {
		panic(fmt.Sprintf("worker: Collect: %v", err))
	}
	w.cfg.Collectors = entries
}

func checkCollectors(entries []Collection) error {
	_, err := collector.New(entries, nil, nil)
	return err
}

// resources is what a metadata update says of the node.
type resources struct {
	// CPUUsage and MemoryUsage are between 0 and 1. Absent until they are known
	// and where nobody collects them.
	CPUUsage       *float64 `json:"cpu_usage,omitempty"`
	MemoryUsage    *float64 `json:"memory_usage,omitempty"`
	CurrentJobs    int      `json:"current_jobs"`
	MaxConcurrency int      `json:"max_concurrency"`
	// Metrics are all that the collectors found.
	Metrics json.RawMessage `json:"metrics,omitempty"`
}

func (w *Worker) resources(figures collector.Snapshot) json.RawMessage {
	r := resources{
		CPUUsage: usage(figures["cpu"]), MemoryUsage: usage(figures["memory"]),
		CurrentJobs: int(w.handling.Load()), MaxConcurrency: int(w.profile.slots.Load()),
	}
	if len(figures) > 0 {
		r.Metrics = figures.AppendJSON(nil)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return json.RawMessage("{}") // not reached: a snapshot has only what JSON has
	}
	return raw
}

func usage(m Metrics) *float64 {
	v, ok := m["usage"].(float64)
	if !ok {
		return nil
	}
	return &v
}

// newFigures is called by start, when all collectors are known.
func (w *Worker) newFigures() error {
	var err error
	if w.figures, err = collector.New(w.cfg.Collectors, w.log, w.registerer); err != nil {
		return fmt.Errorf("collectors: %w", err)
	}
	return nil
}
