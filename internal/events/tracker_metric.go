package events

import "github.com/prometheus/client_golang/prometheus"

type trackerMetrics struct {
	servers, connected    prometheus.Gauge
	invalidations, resets prometheus.Counter
}

// newTrackerMetrics registers the tracker's metrics. The number of series does not grow with cells
// or servers.
func newTrackerMetrics(reg prometheus.Registerer) *trackerMetrics {
	m := &trackerMetrics{
		servers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freeslot_tracker_servers", Help: "Redis servers whose writes to node profiles are to be tracked.",
		}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freeslot_tracker_connected", Help: "Redis servers whose writes to node profiles are tracked now.",
		}),
		invalidations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freeslot_tracker_invalidations_total", Help: "Keys in the notices of tracking.",
		}),
		resets: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freeslot_tracker_resets_total", Help: "Times that all nodes of a cell may have changed.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.servers, m.connected, m.invalidations, m.resets)
	}
	return m
}
