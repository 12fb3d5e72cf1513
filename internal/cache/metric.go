package cache

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/script"
)

type metrics struct {
	events                      *prometheus.CounterVec
	heard, badEvents, gaps      prometheus.Counter
	resyncErrors, invalidated   prometheus.Counter
	hits, misses, checkTimeouts prometheus.Counter
	classSweeps, classesDropped prometheus.Counter
	eventDelay, resyncNodes     prometheus.Histogram
}

// newMetrics registers the cache's metrics. Gauges read atomics, so the cost of a scrape does not
// grow with the number of nodes.
func newMetrics(c *Cache, reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_cache_events_total", Help: "Node events received.",
		}, []string{"event"}),
		heard:        counter("freeslot_cache_heartbeats_read_total", "Quiet heartbeats read: one every 3 s a node."),
		badEvents:    counter("freeslot_cache_bad_events_total", "Node events that could not be read."),
		gaps:         counter("freeslot_cache_gaps_total", "Gaps seen in the revisions of node events."),
		resyncErrors: counter("freeslot_cache_resync_errors_total", "Comparisons with Redis that failed."),
		invalidated: counter(
			"freeslot_cache_invalidated_nodes_total",
			"Nodes that were read again because their profile was written, by a script or without one.",
		),
		hits: counter("freeslot_cache_checked_hits_total", "Checked reads that found the cached version current."),
		misses: counter(
			"freeslot_cache_checked_misses_total", "Checked reads that found the cached version out of date.",
		),
		checkTimeouts: counter(
			"freeslot_cache_version_check_timeouts_total",
			"Checked reads served from the cache because Redis did not answer in time.",
		),
		classSweeps: counter(
			"freeslot_cache_class_sweeps_total", "Times that room was made because there were too many candidate lists.",
		),
		classesDropped: counter(
			"freeslot_cache_class_evictions_total", "Candidate lists that were dropped because there were too many.",
		),
		eventDelay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "freeslot_cache_event_delay_seconds",
			Help:    "Time from a node's change in Redis to its application; resolution 1 ms.",
			Buckets: script.LatencyBuckets,
		}),
		resyncNodes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_cache_resync_nodes", Help: "Nodes read by one comparison with Redis.",
			Buckets: []float64{0, 1, 10, 100, 1000, 10000},
		}),
	}
	for _, k := range events.Kinds() { // so that each exists from the start
		m.events.WithLabelValues(k.String())
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.events, m.heard, m.badEvents, m.gaps, m.resyncErrors, m.invalidated, m.hits, m.misses,
		m.checkTimeouts, m.classSweeps, m.classesDropped, m.eventDelay, m.resyncNodes)
	registerGauges(c, reg)
	return m
}

func registerGauges(c *Cache, reg prometheus.Registerer) {
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge("freeslot_cache_nodes", "Nodes known.", nil, func() float64 { return float64(c.nodes.Size()) })
	for _, f := range c.followers {
		labels := prometheus.Labels{"cell": strconv.Itoa(f.index)}
		gauge(
			"freeslot_cache_revision", "Revision of the last change applied.", labels,
			func() float64 { return float64(f.revision.Load()) },
		)
		gauge("freeslot_cache_age_seconds", "Time since the cell was last compared with Redis; -1 before the first time.",
			labels, func() float64 {
				h := f.health()
				if !h.Synced {
					return -1
				}
				return h.Age.Seconds()
			})
		gauge(
			"freeslot_cache_stale", "1 when the cell has not been compared with Redis for three intervals.", labels,
			func() float64 { return yes(f.health().Stale) },
		)
		gauge(
			"freeslot_cache_unreachable", "1 when the cell did not answer the last time it was asked.", labels,
			func() float64 { return yes(f.health().Unreachable) },
		)
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "freeslot_redis_outage_seconds_total",
			Help:        "Time for which a cell did not answer this replica, by its comparisons of nodes.",
			ConstLabels: labels,
		}, func() float64 { return f.outages.total(c.clock.now()).Seconds() }))
		gauge(
			"freeslot_cache_untracked", "1 while Redis does not report changes made without a script.", labels,
			func() float64 { return yes(f.health().Untracked) },
		)
		gauge(
			"freeslot_cache_unsubscribed", "1 while Redis refuses the subscription to the events of a cell.", labels,
			func() float64 { return yes(f.health().Unsubscribed) },
		)
	}
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "freeslot_cache_events_dropped_total", Help: "Node events dropped because the queue was full.",
	}, func() float64 {
		sum := uint64(0)
		for _, f := range c.followers {
			if f.events != nil {
				sum += f.events.Dropped()
			}
		}
		return float64(sum)
	}))
}
