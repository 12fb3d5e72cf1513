package lock

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics that docs/lock.md lists. None is labelled by key.
type metrics struct {
	acquires    *prometheus.CounterVec // by outcome
	waits       prometheus.Histogram   // seconds
	holds       prometheus.Histogram   // seconds
	ends        *prometheus.CounterVec // by cause
	renewals    *prometheus.CounterVec // by outcome
	checks      *prometheus.CounterVec // by check, outcome
	recoveries  *prometheus.CounterVec // by action, outcome
	alarms      prometheus.Gauge       // locks whose checks fail
	connected   *prometheus.GaugeVec   // by connection, group
	held, queue prometheus.Gauge       // locks held; acquisitions that wait
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: "freeslot", Subsystem: "lock", Name: name, Help: help}, labels,
		)
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "freeslot", Subsystem: "lock", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(100e-6, 4, 12), // 100 us to 7 min
		})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "freeslot", Subsystem: "lock", Name: name, Help: help})
	}
	m := &metrics{
		acquires: counter("acquires_total", "Attempts to take a lock, by outcome: acquired, busy, failed.", "outcome"),
		waits:    histogram("wait_seconds", "Time until a lock was taken."),
		holds:    histogram("hold_seconds", "Time for which a lock was held."),
		ends:     counter("ends_total", "Holds that ended, by cause.", "cause"),
		renewals: counter(
			"renewals_total",
			"Renewals of leases, by outcome: confirmed, lost (the lock was gone, taken, revoked, or over before the answer), "+
				"unanswered (no answer, or an error).",
			"outcome",
		),
		checks: counter(
			"checks_total",
			"Checks of the watchdog, by check and outcome: ok, failed, unanswered (of state, when Redis was not reached).",
			"check", "outcome",
		),
		recoveries: counter(
			"recoveries_total",
			"Recoveries of the watchdog that have ended, by action and outcome: ok, failed. A release is ok when Redis has "+
				"the lock back.",
			"action", "outcome",
		),
		alarms: gauge("alarms", "Locks whose checks have failed often enough for an alarm."),
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "freeslot", Subsystem: "lock", Name: "connected",
			Help: "1 while the connection works, by connection (commands, wakes) and, on a cluster, by group of locks (its " +
				"hash tag); of groups that were used.",
		}, []string{"connection", "group"}),
		held:  gauge("held", "Locks that this process holds."),
		queue: gauge("waiting", "Acquisitions of this process that wait."),
	}
	if reg != nil {
		reg.MustRegister(
			m.acquires, m.waits, m.holds, m.ends, m.renewals, m.checks, m.recoveries, m.alarms, m.connected, m.held, m.queue,
		)
	}
	return m
}

func (m *metrics) acquired(err error, after time.Duration) {
	switch {
	case err == nil:
		m.acquires.WithLabelValues("acquired").Inc()
		m.waits.Observe(after.Seconds())
		m.held.Inc()
	case errors.Is(err, ErrNotAcquired):
		m.acquires.WithLabelValues("busy").Inc()
	default:
		m.acquires.WithLabelValues("failed").Inc()
	}
}

// causes are the values of the label cause of ends_total.
var causes = []struct {
	cause error
	name  string
}{
	{ErrUnlocked, "unlocked"},
	{ErrExpired, "expired"},
	{ErrGone, "gone"},
	{ErrTaken, "taken"},
	{ErrRevoked, "revoked"},
	{ErrMaxHold, "max_hold"},
	{ErrStalled, "stalled"},
	{ErrClosed, "closed"},
}

func (m *metrics) ended(cause error, held time.Duration) {
	name := "other"
	for _, c := range causes {
		if errors.Is(cause, c.cause) {
			name = c.name
			break
		}
	}
	m.ends.WithLabelValues(name).Inc()
	m.holds.Observe(held.Seconds())
	m.held.Dec()
}

func (m *metrics) checked(check, outcome string) {
	m.checks.WithLabelValues(check, outcome).Inc()
}

func outcome(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}
