package schedule

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	runs   *prometheus.CounterVec
	missed prometheus.Counter
	lag    prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_schedule_runs_total",
			Help: "Runs of schedules that this replica ended, by outcome: created, or failed because no job could be created.",
		}, []string{"outcome"}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freeslot_schedule_missed_runs_total",
			Help: "Runs of schedules that this replica left out because they were missed.",
		}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_schedule_lag_seconds", Help: "From the time of a run to the creation of its job.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600},
		}),
	}
	m.runs.WithLabelValues("created")
	m.runs.WithLabelValues("failed")
	if reg != nil {
		reg.MustRegister(m.runs, m.missed, m.lag)
	}
	return m
}
