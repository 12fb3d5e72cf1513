package script

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
)

// LatencyBuckets are histogram buckets from 20 us to 5 s.
var LatencyBuckets = []float64{
	20e-6, 40e-6, 60e-6, 80e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6,
	1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 5,
}

// These are the settings of native histograms in internal/process/metrics, too, which this package
// cannot import.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
)

type metrics struct {
	latency *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	batch   *prometheus.HistogramVec
	// inFlight counts calls, not connections, because all calls share one pipelined connection.
	inFlight prometheus.Gauge
	// waits counts the waits for Redis' replicas by outcome. waitTime is how long they took.
	waits    *prometheus.CounterVec
	waitTime prometheus.Histogram
	// all has the time of every call. It is not exposed: latency has the same by call.
	all prometheus.Histogram
	reg prometheus.Registerer
}

// newMetrics registers the metrics with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "freeslot_redis_call_seconds", Help: "Time of one call to Redis, as this process saw it.",
			Buckets: LatencyBuckets, NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets,
		}, []string{"call"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_redis_call_errors_total", Help: "Calls to Redis that ended with an error.",
		}, []string{"call"}),
		batch: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "freeslot_redis_batch_items", Help: "Items that one script call carried.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64},
		}, []string{"call"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freeslot_redis_calls_in_flight", Help: "Calls to Redis under way; they share the pipelined connections.",
		}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_replication_waits_total",
			Help: "Waits for Redis' replicas, by outcome: confirmed, short (too few in time) or failed.",
		}, []string{"outcome"}),
		waitTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "freeslot_replication_wait_seconds",
			Help:    "Time of the calls that waited for Redis' replicas, the call itself included.",
			Buckets: LatencyBuckets,
		}),
		all: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "all", Buckets: LatencyBuckets}),
		reg: reg,
	}
	if reg != nil {
		reg.MustRegister(m.latency, m.errors, m.batch, m.inFlight, m.waits, m.waitTime)
	}
	return m
}

// queued registers the length of a queue of items.
func (m *metrics) queued(call string, length func() int) {
	if m.reg == nil {
		return
	}
	m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freeslot_redis_queued_items", Help: "Items that wait for the next script call.",
		ConstLabels: prometheus.Labels{"call": call},
	}, func() float64 { return float64(length()) }))
}

// batched returns the function that counts the items of a call.
func (m *metrics) batched(call string) func(items int) {
	sizes := m.batch.WithLabelValues(call)
	return func(items int) { sizes.Observe(float64(items)) }
}

func (m *metrics) observe(call string, begin time.Time, err error) {
	took := time.Since(begin).Seconds()
	m.latency.WithLabelValues(call).Observe(took)
	m.all.Observe(took)
	if err != nil && !rueidis.IsRedisNil(err) {
		m.errors.WithLabelValues(call).Inc()
	}
}

func (m *metrics) replicated(outcome string, begin time.Time) {
	m.waits.WithLabelValues(outcome).Inc()
	m.waitTime.Observe(time.Since(begin).Seconds())
}
