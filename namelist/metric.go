package namelist

import "github.com/prometheus/client_golang/prometheus"

// metrics are a client's. None is labelled by list or id.
type metrics struct {
	asked, gaps, failed prometheus.Counter
	unknown             *prometheus.CounterVec
	bytes, stale        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "freeslot", Subsystem: "namelist", Name: name, Help: help}
	}
	m := &metrics{
		asked:   prometheus.NewCounter(prometheus.CounterOpts(opts("asked_total", "Ids that Redis was asked for."))),
		gaps:    prometheus.NewCounter(prometheus.CounterOpts(opts("gaps_total", "Events that did not follow the one before, so that changes were fetched."))),
		failed:  prometheus.NewCounter(prometheus.CounterOpts(opts("failed_calls_total", "Calls that read lists and filters and had no answer."))),
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts(opts("unknown_total", "Checks that asked Redis and are unknown.")), []string{"reason"}),
		bytes:   prometheus.NewGauge(prometheus.GaugeOpts(opts("bytes", "Memory that filters and edits need."))),
		stale:   prometheus.NewGauge(prometheus.GaugeOpts(opts("stale_lists", "Lists of which nothing was heard for three seconds."))),
	}
	if reg != nil {
		reg.MustRegister(m.asked, m.gaps, m.failed, m.unknown, m.bytes, m.stale)
	}
	return m
}
