package cache

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/cell"
)

type metrics struct {
	events                      *prometheus.CounterVec
	badEvents, gaps             prometheus.Counter
	resyncErrors                prometheus.Counter
	hits, misses, checkTimeouts prometheus.Counter
	classesDropped              prometheus.Counter
	eventDelay, resyncNodes     prometheus.Histogram
}

// newMetrics registers the cache's metrics; gauges read atomics, so a scrape costs
// the same whatever the number of nodes.
func newMetrics(c *Cache, reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_cache_events_total", Help: "Node events received.",
		}, []string{"event"}),
		badEvents:      counter("freeslot_cache_bad_events_total", "Node events that could not be read."),
		gaps:           counter("freeslot_cache_gaps_total", "Gaps seen in the revisions of node events."),
		resyncErrors:   counter("freeslot_cache_resync_errors_total", "Comparisons with Redis that failed."),
		hits:           counter("freeslot_cache_checked_hits_total", "Checked reads that found the cached version current."),
		misses:         counter("freeslot_cache_checked_misses_total", "Checked reads that found the cached version out of date."),
		checkTimeouts:  counter("freeslot_cache_version_check_timeouts_total", "Checked reads served from the cache because Redis did not answer in time."),
		classesDropped: counter("freeslot_cache_class_evictions_total", "Times that all candidate lists were dropped because there were too many."),
		eventDelay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_cache_event_delay_seconds", Help: "Time from a node's change in Redis to its application; resolution 1 ms.",
			Buckets: cell.LatencyBuckets,
		}),
		resyncNodes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "freeslot_cache_resync_nodes", Help: "Nodes read by one comparison with Redis.",
			Buckets: []float64{0, 1, 10, 100, 1000, 10000},
		}),
	}
	if reg == nil {
		return m
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	reg.MustRegister(m.events, m.badEvents, m.gaps, m.resyncErrors, m.hits, m.misses, m.checkTimeouts, m.classesDropped,
		m.eventDelay, m.resyncNodes,
		gauge("freeslot_cache_nodes", "Nodes known.", func() float64 { return float64(c.nodes.Size()) }),
		gauge("freeslot_cache_revision", "Revision of the last change applied.", func() float64 { return float64(c.revision.Load()) }),
		gauge("freeslot_cache_age_seconds", "Time since the cache was last compared with Redis; -1 before the first time.", func() float64 {
			h := c.Health()
			if !h.Synced {
				return -1
			}
			return h.Age.Seconds()
		}),
		gauge("freeslot_cache_stale", "1 when the cache has not been compared with Redis for three intervals.", func() float64 {
			if c.Health().Stale {
				return 1
			}
			return 0
		}),
	)
	if c.sub != nil {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "freeslot_cache_events_dropped_total", Help: "Node events dropped because the queue was full.",
		}, func() float64 { return float64(c.sub.Dropped()) }))
	}
	return m
}
