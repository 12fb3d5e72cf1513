package api

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	processmetrics "github.com/freeslot/freeslot/internal/process/metrics"
)

// metrics counts requests. Its labels are bounded: routes and statuses, never input of a caller.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	waits    prometheus.Gauge
}

// newMetrics registers with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	return &metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_http_requests_total", Help: "HTTP requests by route and status.",
		}, []string{"route", "status"}),
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "freeslot_http_request_seconds", Help: "Time to answer an HTTP request, the wait for a result included.",
			Buckets:                        []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 15, 60},
			NativeHistogramBucketFactor:    processmetrics.NativeFactor,
			NativeHistogramMaxBucketNumber: processmetrics.NativeBuckets,
		}, []string{"route"}),
		waits: auto.NewGauge(prometheus.GaugeOpts{
			Name: "freeslot_http_waits", Help: "HTTP submits that wait for their job's result.",
		}),
	}
}

// wrap counts requests to next. It must not wrap WebSocket handlers: their requests last for hours.
func (m *metrics) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			route := cmp.Or(r.Pattern, "none")
			m.requests.WithLabelValues(route, strconv.Itoa(recorder.status)).Inc()
			m.seconds.WithLabelValues(route).Observe(time.Since(begin).Seconds())
		}()
		next.ServeHTTP(recorder, r)
	})
}

type statusRecorder struct {
	http.ResponseWriter
	status int
	begun  bool // something was written
}

func (s *statusRecorder) Write(b []byte) (int, error) {
	s.begun = true
	return s.ResponseWriter.Write(b)
}

func (s *statusRecorder) WriteHeader(status int) {
	s.status, s.begun = status, true
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }
