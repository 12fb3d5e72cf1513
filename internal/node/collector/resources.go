package collector

// Resources are the figures of a metadata update.
type Resources struct {
	// AtMS is when the store takes them in, by its clock. heartbeat.lua puts the time where it
	// finds 0 in the first field.
	AtMS int64 `json:"at_ms"`
	// AgesMS is how long before AtMS the figures were taken, by type.
	AgesMS map[string]int64 `json:"ages_ms,omitempty"`
	// CPUUsage and MemoryUsage are between 0 and 1. They are absent until they are known, and
	// without a collector.
	CPUUsage       *float64 `json:"cpu_usage,omitempty"`
	MemoryUsage    *float64 `json:"memory_usage,omitempty"`
	CurrentJobs    int      `json:"current_jobs"`
	MaxConcurrency int      `json:"max_concurrency"`
	// Metrics are all figures of the collectors.
	Metrics Snapshot `json:"metrics,omitempty"`
}
