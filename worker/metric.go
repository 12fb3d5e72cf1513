package worker

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
	"github.com/freeslot/freeslot/internal/process/logging"
	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/script"
)

// Outcomes of attempts, the label of freeslot_worker_jobs_total. The outcome of a reported attempt
// is the job's state, unless it is one of these.
const (
	// outcomeInterrupted: handed back because the node stops.
	outcomeInterrupted = "interrupted"
	// outcomeRetry: failed with a retryable error.
	outcomeRetry = "retry"
	// outcomeStale: reported, but the node no longer owned the attempt.
	outcomeStale = "stale"
	// outcomeDropped: not reported, because the node did not own it or could not report it.
	outcomeDropped = "dropped"
)

// Outcomes of progress reports, the label of freeslot_worker_progress_total.
const (
	progressSent = "sent"
	// progressReplaced: a later report came before it was sent.
	progressReplaced = "replaced"
	// progressDropped: the handler returned before it was sent.
	progressDropped = "dropped"
	// progressStale: sent, but the node no longer owned the attempt.
	progressStale = "stale"
)

type metrics struct {
	progress          *prometheus.CounterVec
	jobs              *prometheus.CounterVec
	running           prometheus.Gauge
	handlerSeconds    *prometheus.HistogramVec
	heartbeats        *prometheus.CounterVec
	heartbeatSeconds  prometheus.Histogram
	heartbeatFailures prometheus.Counter
	readFailures      prometheus.Counter
	completionRetries prometheus.Counter
	gateway           *gatewayclient.Metrics // nil without a gateway
}

// newMetrics registers the metrics with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "freeslot", Subsystem: "worker", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Namespace: "freeslot", Subsystem: "worker", Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor:    processmetrics.NativeFactor,
			NativeHistogramMaxBucketNumber: processmetrics.NativeBuckets,
		}
	}
	m := &metrics{
		jobs:     counters("jobs_total", "Attempts that ended, by service and outcome.", "service", "outcome"),
		progress: counters("progress_total", "Progress that handlers reported, by outcome.", "outcome"),
		running: prometheus.NewGauge(prometheus.GaugeOpts(opts("jobs_running",
			"Handlers that run, those that ignore a cancelled context included."))),
		handlerSeconds: prometheus.NewHistogramVec(histogram("handler_seconds", "How long handlers ran.",
			prometheus.ExponentialBuckets(0.0005, 2.5, 15)), []string{"service"}), // 0.5 ms to 3 min
		heartbeats: counters(
			"heartbeats_total", "Answered heartbeats, by kind: alone, or with the figures of the node.", "kind",
		),
		heartbeatSeconds: prometheus.NewHistogram(histogram(
			"heartbeat_seconds", "How long answered heartbeats took.", script.LatencyBuckets,
		)),
		heartbeatFailures: counter("heartbeat_failures_total", "Heartbeats and repeated registrations without an answer."),
		readFailures:      counter("dispatch_read_failures_total", "Reads of the dispatch stream that failed."),
		completionRetries: counter("completion_retries_total", "Completions that had to be repeated."),
	}
	return m, processmetrics.Register(reg, m.jobs, m.progress, m.running, m.handlerSeconds,
		m.heartbeats, m.heartbeatSeconds, m.heartbeatFailures, m.readFailures, m.completionRetries)
}

func (m *metrics) countProgress(outcome string) { m.progress.WithLabelValues(outcome).Inc() }

// ended counts one attempt, and logs it at debug.
func (w *Worker) ended(a *attempt, outcome string) {
	w.metrics.jobs.WithLabelValues(w.serviceLabel(a.service()), outcome).Inc()
	w.log.Debug(
		"job.ended", zap.String(logging.FieldJob, a.id.Job), zap.Int("attempt", a.id.N), zap.String("service", a.service()),
		zap.String("outcome", outcome),
	)
}

// serviceLabel bounds the label values: services come from outside. A removed service keeps its
// label, because its jobs may still end.
func (w *Worker) serviceLabel(service string) string {
	if !w.profile.table.Load().ever[service] {
		return "other"
	}
	return service
}

func outcomeOf(comp *cell.Completion) string {
	switch comp.Next {
	case cell.HandBack:
		return outcomeInterrupted
	case cell.Retry:
		return outcomeRetry
	default:
		return string(comp.State)
	}
}
