package dispatch

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

type metrics struct {
	submits, refusals, rated            *prometheus.CounterVec
	placed, failures, enqueued, matched *prometheus.CounterVec
	reaped, expired, moved, dropped     *prometheus.CounterVec
	retained, reapingPaused             *prometheus.GaugeVec
	waiting, held, oldest               *prometheus.GaugeVec
	selection, assign                   prometheus.Histogram
}

// newMetrics registers with reg, which may be nil. outstanding returns the number of jobs whose
// results are awaited.
func newMetrics(reg prometheus.Registerer, outstanding func() int) *metrics {
	auto := promauto.With(reg)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauges := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"cell"})
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freeslot_outstanding_jobs", Help: "Jobs whose results clients of this replica wait for.",
	}, func() float64 { return float64(outstanding()) })
	return &metrics{
		submits: counters("freeslot_submits_total",
			"Jobs submitted, by outcome: accepted or the error code.", "outcome"),
		refusals: counters("freeslot_reservation_refusals_total",
			"Reservations that Redis refused, by reason: how wrong the cache was.", "reason"),
		rated: counters("freeslot_rate_submits_total",
			"Jobs of the tenants with a submit rate: admitted, refused, or failed because Redis could not be asked.",
			"tenant", "outcome"),
		placed: counters("freeslot_cell_jobs_total",
			"Jobs placed at their submission, by cell.", "cell"),
		failures: counters("freeslot_cell_failures_total",
			"Calls after which a cell was left out of choices until it answered again.", "cell"),
		enqueued: counters("freeslot_jobs_enqueued_total",
			"Jobs that had to wait for a slot when they were submitted, by cell.", "cell"),
		matched: counters("freeslot_jobs_matched_total",
			"Attempts that began because this replica found a free node for jobs that waited, by cell.", "cell"),
		reaped: counters("freeslot_nodes_reaped_total",
			"Silent nodes that this replica took out of a cell.", "cell"),
		expired: counters("freeslot_jobs_expired_total",
			"Jobs that this replica found past their deadline, by cell.", "cell"),
		moved: counters("freeslot_jobs_moved_total",
			"Waiting jobs that this replica brought to another cell because theirs had no node left that fits, "+
				"by the cell that they left.", "cell"),
		dropped: counters("freeslot_records_dropped_total",
			"Records of ended jobs that this replica dropped because they took too many bytes, by cell.", "cell"),
		retained: gauges("freeslot_retained_bytes",
			"Bytes that the records of ended jobs take, by cell; where retention_bytes limits them."),
		reapingPaused: gauges("freeslot_reaping_paused",
			"1 while silent nodes of a cell are left alone because too many fell silent at once."),
		waiting: gauges("freeslot_waiting_jobs",
			"Jobs that wait for a slot, by cell. All replicas report the same."),
		held: gauges("freeslot_held_jobs",
			"Jobs that wait because a limit of their tenant or concurrency key holds them back, by cell."),
		oldest: gauges("freeslot_oldest_waiting_seconds",
			"How long ago the oldest job that waits for a slot was submitted, by cell; 0 where none waits."),
		selection: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_selection_seconds", Help: "Time to choose the candidates of one job from memory.",
			Buckets: []float64{100e-9, 250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 1e-3, 10e-3},
		}),
		assign: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_assign_seconds", Help: "Time from a submit to its assignment, of jobs that did not wait.",
			Buckets: script.LatencyBuckets,
		}),
	}
}

// cellMetrics holds the metrics of one cell. retained has no value if nothing limits the records.
type cellMetrics struct {
	placed, failures, enqueued, matched, reaped, expired, moved, dropped prometheus.Counter

	reapingPaused prometheus.Gauge
	retained      *prometheus.GaugeVec
}

func (m *metrics) forCell(index int) cellMetrics {
	label := strconv.Itoa(index)
	return cellMetrics{
		placed: m.placed.WithLabelValues(label), failures: m.failures.WithLabelValues(label),
		enqueued: m.enqueued.WithLabelValues(label), matched: m.matched.WithLabelValues(label),
		reaped: m.reaped.WithLabelValues(label), expired: m.expired.WithLabelValues(label),
		moved: m.moved.WithLabelValues(label), dropped: m.dropped.WithLabelValues(label),
		reapingPaused: m.reapingPaused.WithLabelValues(label),
		retained:      m.retained.MustCurryWith(prometheus.Labels{"cell": label}),
	}
}

func (m *metrics) submitted(err error, assigned bool, took time.Duration) {
	if err != nil {
		m.submits.WithLabelValues(string(freeslot.CodeOf(err))).Inc()
		return
	}
	m.submits.WithLabelValues("accepted").Inc()
	if assigned {
		m.assign.Observe(took.Seconds())
	}
}
