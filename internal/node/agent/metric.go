package agent

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of reloads, the label of freeslot_worker_config_reloads_total.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged"
	reloadRefused   = "refused"
)

type metrics struct {
	reloads  *prometheus.CounterVec
	reloaded prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	const namespace, subsystem = "freeslot", "worker"
	m := &metrics{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "config_reloads_total",
			Help: "Times that the configuration was read again, by result.",
		}, []string{"result"}),
		reloaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "config_last_reload_successful",
			Help: "0 when the configuration was refused the last time that it was read.",
		}),
	}
	for _, result := range []string{reloadApplied, reloadUnchanged, reloadRefused} {
		m.reloads.WithLabelValues(result)
	}
	m.reloaded.Set(1)
	for _, c := range []prometheus.Collector{m.reloads, m.reloaded} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// reload counts one.
func (m *metrics) reload(result string) {
	m.reloads.WithLabelValues(result).Inc()
	if result == reloadRefused {
		m.reloaded.Set(0)
		return
	}
	m.reloaded.Set(1)
}
