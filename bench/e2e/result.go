package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// results is the JSON file: one run of the tool.
type results struct {
	Command string `json:"command"`
	// Commit is the checked-out revision, with "+changes" when the tree had uncommitted ones.
	Commit    string       `json:"commit"`
	Date      string       `json:"date"`
	Go        string       `json:"go"`
	OS        string       `json:"os"`
	CPU       string       `json:"cpu"`
	Cores     int          `json:"cores"`
	Replicas  int          `json:"replicas"`
	Nodes     int          `json:"nodes"`
	Slots     int          `json:"slots_per_node"`
	Sessions  int          `json:"sessions"`
	Payload   int          `json:"payload_bytes"`
	WarmUpMS  int64        `json:"warm_up_ms"`
	MeasureMS int64        `json:"measure_ms"`
	Systems   []systemPart `json:"systems"`
}

// systemPart is what was measured on one freshly started system.
type systemPart struct {
	Redis string `json:"redis"`
	// AOF is off, or the appendfsync of the append-only file.
	AOF string `json:"aof"`
	// Idle is the yardstick before any load.
	Idle      latency        `json:"evalsha_idle"`
	Scenarios []measurements `json:"scenarios"`
}

// measurements are one scenario's.
type measurements struct {
	Scenario scenario `json:"scenario"`
	// Jobs is how many were counted, all of them succeeded.
	Jobs          int64   `json:"jobs"`
	JobsPerSecond float64 `json:"jobs_per_second"`
	Assign        latency `json:"time_to_assign"`
	Result        latency `json:"time_to_result"`
	// Late is, in an open loop, by how much the submits came after they were due: what this program adds to
	// both times. In a closed loop it is absent.
	Late *latency `json:"submitted_late,omitempty"`
	// Loaded is the yardstick while the load was on.
	Loaded latency   `json:"evalsha_loaded"`
	Redis  redisCost `json:"redis"`
	// Refused counts submits that were answered with a temporary error and tried again.
	Refused map[string]int64 `json:"refused,omitempty"`
	// Failed counts jobs that did not succeed, by code or state.
	Failed map[string]int64 `json:"failed,omitempty"`
}

// redisCost is what Redis spent on one counted job.
type redisCost struct {
	// CPUPerJob is the main thread's user and system time.
	CPUPerJob float64 `json:"cpu_us_per_job"`
	// ScriptPerJob is the time inside EVALSHA, the commands that scripts call included.
	ScriptPerJob float64 `json:"evalsha_us_per_job"`
	// Commands are those that took the most time; those called by scripts are counted here too.
	Commands []commandCost `json:"commands"`
}

type commandCost struct {
	Command     string  `json:"command"`
	CallsPerJob float64 `json:"calls_per_job"`
	TimePerJob  float64 `json:"us_per_job"`
}

// latency summarises a histogram, in microseconds.
type latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_us"`
	P50   int64   `json:"p50_us"`
	P90   int64   `json:"p90_us"`
	P99   int64   `json:"p99_us"`
	P999  int64   `json:"p999_us"`
	Max   int64   `json:"max_us"`
}

const (
	longestLatency     = time.Minute
	significantFigures = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longestLatency.Microseconds(), significantFigures)
}

// record counts a latency; one that is off the scale counts as the scale's end.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	us := min(max(d.Microseconds(), 1), longestLatency.Microseconds())
	if err := h.RecordValue(us); err != nil {
		panic(fmt.Sprintf("histogram refused %d us: %v", us, err))
	}
}

func summary(h *hdrhistogram.Histogram) latency {
	return latency{
		Count: h.TotalCount(),
		Mean:  rounded(h.Mean()),
		P50:   h.ValueAtQuantile(50),
		P90:   h.ValueAtQuantile(90),
		P99:   h.ValueAtQuantile(99),
		P999:  h.ValueAtQuantile(99.9),
		Max:   h.Max(),
	}
}

// failures is how many jobs of the run did not succeed.
func (r *results) failures() int64 {
	var n int64
	for _, s := range r.Systems {
		for _, m := range s.Scenarios {
			for _, count := range m.Failed {
				n += count
			}
		}
	}
	return n
}

func (r *results) encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// loadResults refuses fields that it does not know: a report of half a file would look complete.
func loadResults(path string) (*results, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	defer f.Close()
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	r := new(results)
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("results %s: %w", path, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("results %s: something follows the results", path)
	}
	return r, nil
}

// writeFile writes by way of a temporary file, so that an interrupted run leaves the old one.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil { //nolint:gosec // meant to be read
		return err
	}
	return os.Rename(tmp, path)
}

// rounded keeps one decimal, so that the file does not suggest more.
func rounded(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }
