package centre

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ removed, verdicts, errors prometheus.Counter }

// newMetrics registers the metrics with reg, which may be nil.
func newMetrics(reg prometheus.Registerer, c *Centre) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "freeslot", Subsystem: "registry", Name: name, Help: help,
		})
	}
	gauge := func(name, help string, count func(*target) bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "freeslot", Subsystem: "registry", Name: name, Help: help,
		}, func() (n float64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, t := range c.targets {
				if count(t) {
					n++
				}
			}
			return n
		})
	}
	m := &metrics{
		removed: counter(
			"removed_total",
			"Instances that this replica removed because they were silent, or failed their checks, for too long.",
		),
		verdicts: counter("verdicts_total", "Changes of health that this replica's checks found and wrote."),
		errors: counter(
			"centre_errors_total", "Calls to Redis of cleanup and checks that failed; they are repeated in the next round.",
		),
	}
	if reg != nil {
		reg.MustRegister(m.removed, m.verdicts, m.errors,
			gauge("checked_instances", "Instances that this replica checks.", func(t *target) bool { return !t.unchecked() }),
			gauge(
				"unchecked_instances",
				"Instances whose check this replica does not make: its kind is not known, "+
					"or registry.checks.networks does not allow it.",
				(*target).unchecked,
			),
			gauge(
				"failing_instances", "Instances that fail this replica's checks.",
				func(t *target) bool { return t.judged && t.failure != nil },
			),
			gauge(
				"held_instances", "Instances whose failure waits until another replica agrees.",
				func(t *target) bool { return t.held },
			))
	}
	return m
}
