package healthcheck

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
)

// metrics holds a group's metrics. A nil *metrics counts nothing.
type metrics struct {
	healthy  *prometheus.GaugeVec
	seconds  *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// newMetrics registers the metrics with reg.
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
	if m == nil {
		return
	}
	m.set(service, healthy)
	m.failures.WithLabelValues(service)
}

// observe counts one check.
func (m *metrics) observe(service string, took time.Duration, failure error) {
	if m == nil {
		return
	}
	m.seconds.WithLabelValues(service).Observe(took.Seconds())
	if failure != nil {
		m.failures.WithLabelValues(service).Inc()
	}
}

func (m *metrics) set(service string, healthy bool) {
	if m == nil {
		return
	}
	value := 0.0
	if healthy {
		value = 1
	}
	m.healthy.WithLabelValues(service).Set(value)
}

// forget drops a service that is no longer checked.
func (m *metrics) forget(service string) {
	if m == nil {
		return
	}
	m.healthy.DeleteLabelValues(service)
	m.seconds.DeleteLabelValues(service)
	m.failures.DeleteLabelValues(service)
}
