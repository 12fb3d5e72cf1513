package client

import (
	"github.com/prometheus/client_golang/prometheus"

	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
)

// Outcomes of connects to gateways, the label of freeslot_worker_gateway_connects_total.
const (
	connectDone = "connected"
	// connectRefused: a gateway answered, and did not want the node.
	connectRefused = "refused"
	// connectFailed: no gateway answered.
	connectFailed = "failed"
)

// Metrics are the worker's metrics of its gateway.
type Metrics struct {
	connects  *prometheus.CounterVec
	connected prometheus.Gauge
}

// NewMetrics registers the metrics with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "freeslot", Subsystem: "worker", Name: name, Help: help}
	}
	m := &Metrics{
		connects: prometheus.NewCounterVec(prometheus.CounterOpts(opts("gateway_connects_total",
			"Connects to gateways, by outcome.")), []string{"outcome"}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts(opts("gateway_connected",
			"Whether the node is connected to a gateway."))),
	}
	return m, processmetrics.Register(reg, m.connects, m.connected)
}
