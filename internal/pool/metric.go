package pool

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ invalid, changes, errors prometheus.Counter }

// newMetrics registers the follower's metrics; the gauges read atomics.
func newMetrics(f *Follower, reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m := &metrics{
		invalid: counter(
			"freeslot_config_invalid_total",
			"Configurations of pools found in Redis that are not valid, and were not put in force.",
		),
		changes: counter("freeslot_config_changes_total", "Configurations of pools put in force, the first one included."),
		errors: counter(
			"freeslot_config_read_errors_total", "Comparisons of the configuration of pools with Redis that failed.",
		),
	}
	if reg != nil {
		reg.MustRegister(m.invalid, m.changes, m.errors,
			gauge("freeslot_config_version",
				"Version of the configuration of pools in force; 0 if the replica's own file is in force.",
				func() float64 { return float64(f.Current().Version) }),
			gauge("freeslot_config_age_seconds", "Time since the configuration of pools was last compared with Redis.",
				func() float64 { return f.Health().Age.Seconds() }))
	}
	return m
}
