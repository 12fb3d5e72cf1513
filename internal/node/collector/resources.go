package collector

// Resources holds the figures of a metadata update.
type Resources struct {
	// AtMS is the time at which the store takes the figures in, by its clock. heartbeat.lua writes
	// the time into the first field if that is 0.
	AtMS int64 `json:"at_ms"`
	// AgesMS holds, by type, how long before AtMS the figures were taken.
	AgesMS map[string]int64 `json:"ages_ms,omitempty"`
	// CPUUsage and MemoryUsage are between 0 and 1. They are absent until they are known, and
	// without a collector.
	CPUUsage    *float64 `json:"cpu_usage,omitempty"`
	MemoryUsage *float64 `json:"memory_usage,omitempty"`
	CurrentJobs int      `json:"current_jobs"`
	// RunMS is the time for which the running jobs have run so far, added up.
	RunMS          int64 `json:"run_ms"`
	MaxConcurrency int   `json:"max_concurrency"`
	// Leaving is the reason for which the node takes no more jobs and will leave, if it has one.
	Leaving string `json:"leaving,omitempty"`
	// Build is the version of freeslot that the agent was built from.
	Build string `json:"build,omitempty"`
	// Metrics holds all figures of the collectors.
	Metrics Snapshot `json:"metrics,omitempty"`
}
