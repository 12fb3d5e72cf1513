package dispatch

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/script"
)

type metrics struct {
	submits, refusals, rated            *prometheus.CounterVec
	placed, failures, enqueued, matched *prometheus.CounterVec
	reaped, expired, moved, dropped     *prometheus.CounterVec
	ended, retries                      *prometheus.CounterVec
	retained, reapingPaused             *prometheus.GaugeVec
	waiting, held, oldest               *prometheus.GaugeVec
	selection, assign                   prometheus.Histogram
	start                               *prometheus.HistogramVec
	// starts has the histograms of tenants that are named; others counts for the rest.
	starts map[string]prometheus.Observer
	others prometheus.Observer

	arrivals arrivals
}

// arrivals counts submitted jobs by how they went on.
type arrivals struct{ placed, queued, refused atomic.Uint64 }

// newMetrics registers with reg, which may be nil. outstanding returns the number of jobs whose
// results are awaited.
func newMetrics(reg prometheus.Registerer, outstanding func() int, tenants []string) *metrics {
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
	m := &metrics{
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
			"Jobs that this replica found past their deadline, or for which no node came in time, by cell.", "cell"),
		moved: counters("freeslot_jobs_moved_total",
			"Waiting jobs that this replica brought to another cell because theirs had no node left that fits, "+
				"by the cell that they left.", "cell"),
		dropped: counters("freeslot_records_dropped_total",
			"Records of ended jobs that this replica dropped because they took too many bytes, by cell.", "cell"),
		ended: counters("freeslot_jobs_ended_total",
			"Jobs that ended, by cell and state, since this replica started. All replicas count all jobs.", "cell", "state"),
		retries: counters("freeslot_jobs_retried_total",
			"Attempts that failed or were lost and were followed by another one, by cell. All replicas count all jobs.", "cell"),
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
	}
	m.addStarts(auto, tenants)
	return m
}

// addStarts adds the histograms of assignments and starts.
func (m *metrics) addStarts(auto promauto.Factory, tenants []string) {
	m.assign = auto.NewHistogram(prometheus.HistogramOpts{
		Name: "freeslot_assign_seconds", Help: "Time from a submit to its assignment, of jobs that did not wait.",
		Buckets: script.LatencyBuckets, NativeHistogramBucketFactor: processmetrics.NativeFactor,
		NativeHistogramMaxBucketNumber: processmetrics.NativeBuckets,
	})
	m.start = auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "freeslot_start_seconds",
		Help: "Time from a submit to the begin of the first attempt, the wait for a slot included, by tenant; other for " +
			"all that the configuration does not name. Without jobs for later, and without jobs that wait and whose result no " +
			"client of this replica awaits.",
		Buckets:                        []float64{.001, .005, .02, .1, .5, 1, 5, 15, 60, 300, 900, 3600},
		NativeHistogramBucketFactor:    processmetrics.NativeFactor,
		NativeHistogramMaxBucketNumber: processmetrics.NativeBuckets,
	}, []string{"tenant"})
	m.starts = make(map[string]prometheus.Observer)
	if len(tenants) <= maxTenantLabels {
		for _, tenant := range tenants {
			m.starts[tenant] = m.start.WithLabelValues(tenant)
		}
	}
	m.others = m.start.WithLabelValues(othersLabel)
}

// maxTenantLabels bounds the series of starts: with more tenants in the configuration, all are
// others.
const maxTenantLabels = 100

// started counts the begin of a job's first attempt.
func (m *metrics) started(tenant, traceParent string, took time.Duration) {
	of, named := m.starts[tenant]
	if !named {
		of = m.others
	}
	processmetrics.Observe(of, took.Seconds(), traceParent)
}

// cellMetrics holds the metrics of one cell. retained has no value if nothing limits the records.
type cellMetrics struct {
	placed, failures, enqueued, matched, reaped, expired, moved, dropped prometheus.Counter

	retries prometheus.Counter
	ended   [5]prometheus.Counter // by cell.EndStates

	reapingPaused prometheus.Gauge
	retained      *prometheus.GaugeVec
}

func (m *metrics) forCell(index int) cellMetrics {
	label := strconv.Itoa(index)
	of := cellMetrics{
		placed: m.placed.WithLabelValues(label), failures: m.failures.WithLabelValues(label),
		enqueued: m.enqueued.WithLabelValues(label), matched: m.matched.WithLabelValues(label),
		reaped: m.reaped.WithLabelValues(label), expired: m.expired.WithLabelValues(label),
		moved: m.moved.WithLabelValues(label), dropped: m.dropped.WithLabelValues(label),
		retries:       m.retries.WithLabelValues(label),
		reapingPaused: m.reapingPaused.WithLabelValues(label),
		retained:      m.retained.MustCurryWith(prometheus.Labels{"cell": label}),
	}
	for i, state := range cell.EndStates() {
		of.ended[i] = m.ended.WithLabelValues(label, string(state))
	}
	return of
}

func (m *metrics) submitted(r *Request, err error, assigned bool, took time.Duration) {
	if err != nil {
		m.submits.WithLabelValues(string(freeslot.CodeOf(err))).Inc()
		m.arrivals.refused.Add(1)
		return
	}
	m.submits.WithLabelValues("accepted").Inc()
	if !assigned {
		m.arrivals.queued.Add(1)
		return
	}
	m.arrivals.placed.Add(1)
	processmetrics.Observe(m.assign, took.Seconds(), r.Job.TraceParent)
	m.started(r.Tenant, r.Job.TraceParent, took)
}

// begun counts the start of a job that waited, once.
func (m *metrics) begun(w *waiter) {
	w.mu.Lock()
	begin, tenant := w.begin, w.known.Tenant
	w.begin = time.Time{}
	w.mu.Unlock()
	if !begin.IsZero() {
		m.started(tenant, w.traceParent, time.Since(begin))
	}
}
