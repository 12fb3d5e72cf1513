package collector

import (
	"github.com/prometheus/client_golang/prometheus"

	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
)

// Outcomes of collections, the label of freeslot_worker_collector_collections_total.
const (
	outcomeOK      = "ok"
	outcomeError   = "error"
	outcomeTimeout = "timeout"
	outcomePanic   = "panic"
)

type metrics struct {
	collections *prometheus.CounterVec
	seconds     *prometheus.CounterVec
}

// newMetrics registers the metrics with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: "freeslot", Subsystem: "worker", Name: "collector_" + name, Help: help}, labels,
		)
	}
	m := &metrics{
		collections: counter(
			"collections_total", "Collections of metrics of the machine, by type and outcome.", "type", "outcome",
		),
		seconds: counter("seconds_total", "How long collections of metrics took together, by type.", "type"),
	}
	return m, processmetrics.Register(reg, m.collections, m.seconds)
}
