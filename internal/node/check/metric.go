package check

import (
	"github.com/prometheus/client_golang/prometheus"

	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
)

type metrics struct {
	healthy  *prometheus.GaugeVec
	seconds  *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// newMetrics registers the metrics with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	const namespace, subsystem = "freeslot", "worker"
	labels := []string{"service"}
	m := &metrics{
		healthy: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "service_healthy",
			Help: "1 while the service's check lets the node offer it, by service that is checked.",
		}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "check_seconds",
			Help:    "How long checks of services took, failed ones included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9), // 0.5 ms to 33 s
		}, labels),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "check_failures_total",
			Help: "Checks of services that failed.",
		}, labels),
	}
	return m, processmetrics.Register(reg, m.healthy, m.seconds, m.failures)
}

// begin shows a service whose check begins.
func (m *metrics) begin(service string, healthy bool) {
	m.set(service, healthy)
	m.failures.WithLabelValues(service)
}

func (m *metrics) set(service string, healthy bool) {
	value := 0.0
	if healthy {
		value = 1
	}
	m.healthy.WithLabelValues(service).Set(value)
}

// forget drops a service that is not checked any more.
func (m *metrics) forget(service string) {
	m.healthy.DeleteLabelValues(service)
	m.seconds.DeleteLabelValues(service)
	m.failures.DeleteLabelValues(service)
}
