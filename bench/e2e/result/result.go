// Package result is what bench/e2e writes and what bench/report reads: its JSON, and its part of the report.
package result

import "github.com/freeslot/freeslot/bench/measure"

// Results is the JSON file: one run of the tool.
type Results struct {
	measure.Machine
	Replicas  int      `json:"replicas"`
	Nodes     int      `json:"nodes"`
	Slots     int      `json:"slots_per_node"`
	Sessions  int      `json:"sessions"`
	Payload   int      `json:"payload_bytes"`
	WarmUpMS  int64    `json:"warm_up_ms"`
	MeasureMS int64    `json:"measure_ms"`
	Systems   []System `json:"systems"`
}

// System is what was measured on one freshly started system.
type System struct {
	Redis string `json:"redis"`
	// AOF is off, or the appendfsync of the append-only file.
	AOF string `json:"aof"`
	// Idle is the yardstick before any load.
	Idle      measure.Latency `json:"evalsha_idle"`
	Scenarios []Measurements  `json:"scenarios"`
}

// Measurements are one scenario's.
type Measurements struct {
	Scenario Scenario `json:"scenario"`
	// Jobs is how many were counted, all of them succeeded.
	Jobs          int64           `json:"jobs"`
	JobsPerSecond float64         `json:"jobs_per_second"`
	Assign        measure.Latency `json:"time_to_assign"`
	Result        measure.Latency `json:"time_to_result"`
	// Late is, in an open loop, by how much the submits came after they were due: what this program adds to
	// both times. In a closed loop it is absent.
	Late *measure.Latency `json:"submitted_late,omitempty"`
	// Loaded is the yardstick while the load was on.
	Loaded measure.Latency   `json:"evalsha_loaded"`
	Redis  measure.RedisCost `json:"redis"`
	// Refused counts submits that were answered with a temporary error and tried again.
	Refused map[string]int64 `json:"refused,omitempty"`
	// Failed counts jobs that did not succeed, by code or state.
	Failed map[string]int64 `json:"failed,omitempty"`
}

// Failures is how many jobs of the run did not succeed.
func (r *Results) Failures() int64 {
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
