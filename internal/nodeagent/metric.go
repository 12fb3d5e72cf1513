package nodeagent

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
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
	if err := processmetrics.Register(reg, m.reloads, m.reloaded); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) countReload(result string) {
	m.reloads.WithLabelValues(result).Inc()
	success := 1.0
	if result == reloadRefused {
		success = 0
	}
	m.reloaded.Set(success)
}
