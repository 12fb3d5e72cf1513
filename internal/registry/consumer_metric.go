package registry

import "github.com/prometheus/client_golang/prometheus"

// consumerMetrics holds a consumer's metrics. None is labelled by service.
type consumerMetrics struct {
	gaps, lost, failed, lists prometheus.Counter
	services                  prometheus.Gauge
}

func newConsumerMetrics(reg prometheus.Registerer) *consumerMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "freeslot", Subsystem: "registry_consumer", Name: name, Help: help,
		})
	}
	m := &consumerMetrics{
		gaps: counter("gaps_total", "Events that did not follow the one before, so that changes were fetched."),
		lost: counter(
			"overflows_total", "Times that more messages came than were taken, so that all services were compared.",
		),
		failed: counter("failed_looks_total", "Looks that Redis did not answer."),
		lists:  counter("lists_total", "Lists that were given out."),
		services: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "freeslot", Subsystem: "registry_consumer", Name: "services", Help: "Services that are followed.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.gaps, m.lost, m.failed, m.lists, m.services)
	}
	return m
}
