package dispatch

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

type metrics struct {
	submits   *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	placed    *prometheus.CounterVec
	failures  *prometheus.CounterVec
	selection prometheus.Histogram
	assign    prometheus.Histogram
}

func newMetrics(d *Dispatcher, reg prometheus.Registerer) *metrics {
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		submits:  counters("freeslot_submits_total", "Jobs submitted, by outcome: accepted or the error code.", "outcome"),
		refusals: counters("freeslot_reservation_refusals_total", "Reservations that Redis refused, by reason: how wrong the cache was.", "reason"),
		placed:   counters("freeslot_cell_jobs_total", "Jobs placed, by cell.", "cell"),
		failures: counters("freeslot_cell_failures_total", "Calls after which a cell was left out of choices until it answered again.", "cell"),
		selection: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_selection_seconds", Help: "Time to choose the candidates of one job from memory.",
			Buckets: []float64{100e-9, 250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 1e-3, 10e-3},
		}),
		assign: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_assign_seconds", Help: "Time from a submit to its assignment.", Buckets: cell.LatencyBuckets,
		}),
	}
	if reg != nil {
		reg.MustRegister(m.submits, m.refusals, m.placed, m.failures, m.selection, m.assign, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "freeslot_outstanding_jobs", Help: "Jobs whose results somebody at this replica waits for.",
		}, func() float64 { return float64(d.Outstanding()) }))
	}
	return m
}

// link are the counters of one cell. There are MaxCells of them at most.
func (m *metrics) link(index int) linkMetrics {
	label := strconv.Itoa(index)
	return linkMetrics{placed: m.placed.WithLabelValues(label), failures: m.failures.WithLabelValues(label)}
}

func (m *metrics) submitted(err error, took time.Duration) {
	if err != nil {
		m.submits.WithLabelValues(string(freeslot.CodeOf(err))).Inc()
		return
	}
	m.submits.WithLabelValues("accepted").Inc()
	m.assign.Observe(took.Seconds())
}
