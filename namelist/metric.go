package namelist

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
)

// metrics holds a client's metrics. Answers are counted by the list; see listMetrics. No metric is
// labelled by id.
type metrics struct {
	asked, gaps, failed prometheus.Counter
	unknown             *prometheus.CounterVec
	bytes, stale        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		asked: prometheus.NewCounter(prometheus.CounterOpts(metricOpts("asked_total", "Ids that Redis was asked for."))),
		gaps: prometheus.NewCounter(
			prometheus.CounterOpts(metricOpts(
				"gaps_total", "Events that did not follow the one before, so that changes were fetched.",
			)),
		),
		failed: prometheus.NewCounter(
			prometheus.CounterOpts(metricOpts("failed_calls_total", "Calls that read lists and filters and had no answer.")),
		),
		unknown: prometheus.NewCounterVec(
			prometheus.CounterOpts(metricOpts("unknown_total", "Checks that waited for Redis and are unknown.")),
			[]string{"reason"},
		),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts(metricOpts("bytes", "Memory that filters and edits need."))),
		stale: prometheus.NewGauge(prometheus.GaugeOpts(metricOpts("stale_lists", "Lists without news for three seconds."))),
	}
	if reg != nil {
		reg.MustRegister(m.asked, m.gaps, m.failed, m.unknown, m.bytes, m.stale)
	}
	return m
}

func metricOpts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "freeslot", Subsystem: "namelist", Name: name, Help: help}
}

// register registers the metrics that are read when they are collected.
func (c *Client) register(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(metricOpts(name, help)), value)
	}
	reg.MustRegister(listMetrics{c}, chainMetrics{c},
		gauge("lists", "Lists that are followed.", func() float64 { return float64(len(c.names())) }),
		gauge("asks_in_flight",
			"Ids that Redis is being asked for, and checks that wait for their list; from 1,024 on further checks are unknown.",
			func() float64 {
				c.asks.mu.Lock()
				defer c.asks.mu.Unlock()
				return float64(len(c.asks.pending) + c.asks.waiting)
			}),
		gauge("cache_bytes", "Memory that cached answers of Redis need.", func() float64 {
			c.cache.mu.Lock()
			defer c.cache.mu.Unlock()
			return float64(c.cache.bytes)
		}),
	)
}

// names returns the names of the followed lists, sorted. It leaves out a name that no list can
// have: such a name may not be text, and would break the metrics of the whole process.
func (c *Client) names() []string { return sortedNames(&c.lists) }

func sortedNames(of *sync.Map) []string {
	all := make(map[string]bool)
	of.Range(func(key, _ any) bool {
		if name := key.(string); lists.ValidateName("list", name) == nil {
			all[name] = true
		}
		return true
	})
	return slices.Sorted(maps.Keys(all))
}

// listSeries bounds the lists that have metrics of their own: the first by name.
const listSeries = 100

// listMetrics collects the metrics of each list.
type listMetrics struct{ c *Client }

// listGauges are read from a list's snapshot; ok is false if there is no such value.
var listGauges = []struct {
	desc *prometheus.Desc
	of   func(p *snapshot) (value float64, ok bool)
}{
	{
		listDesc("version", "Version that answers; 0 without one."),
		func(p *snapshot) (float64, bool) { return float64(p.status.Version), true },
	},
	{
		listDesc("revision", "Revision up to which the list's edits are in answers."),
		func(p *snapshot) (float64, bool) { return float64(p.revision), true },
	},
	{
		listDesc("age_seconds", "Time for which changes of the list may not be in answers."),
		func(p *snapshot) (float64, bool) {
			return time.Since(p.asOf).Seconds(), !p.asOf.IsZero()
		},
	},
	{
		listDesc("blocks", "Blocks of the version's filter."),
		func(p *snapshot) (float64, bool) { return float64(p.status.Blocks), true },
	},
	{
		listDesc("blocks_loaded", "Blocks of the version's filter that are in memory."),
		func(p *snapshot) (float64, bool) { return float64(p.status.Loaded), true },
	},
	{
		listDesc("edits", "Ids with an edit in memory."),
		func(p *snapshot) (float64, bool) { return float64(p.status.Edits), true },
	},
	{
		listDesc("bytes", "Memory that the list needs."),
		func(p *snapshot) (float64, bool) { return float64(p.status.Bytes), true },
	},
	{
		listDesc("expires_seconds", "Time until the whole list expires, by Redis' clock; of lists that do."),
		func(p *snapshot) (float64, bool) {
			return float64(p.expires-p.clock.ms()) / 1000, p.expires != 0
		},
	},
}

// lookups is read from a list's counters. Counters that are 0 have no series.
var lookups = prometheus.NewDesc(
	"freeslot_namelist_list_lookups_total",
	"Lookups of ids by source and answer, such as filter_no, and unknown ones by reason.", []string{"list", "answer"}, nil,
)

func listDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("freeslot_namelist_list_"+name, help, []string{"list"}, nil)
}

func (m listMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, g := range listGauges {
		out <- g.desc
	}
	out <- lookups
}

func (m listMetrics) Collect(out chan<- prometheus.Metric) {
	names := m.c.names()
	for _, name := range names[:min(listSeries, len(names))] {
		l, _ := m.c.lists.Load(name)
		p := l.(*List).snapshot.Load()
		for i, n := range l.(*List).counts.Counts() {
			if n != 0 && (i < count.FalsePositives || i >= count.Unknowns) {
				out <- prometheus.MustNewConstMetric(lookups, prometheus.CounterValue, float64(n), name, count.Names[i])
			}
		}
		for _, g := range listGauges {
			if value, ok := g.of(p); ok {
				out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, name)
			}
		}
	}
}

// chainMetrics collects the metrics of each chain.
type chainMetrics struct{ c *Client }

var (
	chainVersionDesc = prometheus.NewDesc(
		"freeslot_namelist_chain_version", "Version of the chain that decides; 0 without one.", []string{"chain"}, nil,
	)
	chainShadowDesc = prometheus.NewDesc(
		"freeslot_namelist_chain_shadow_total",
		"Decisions that were compared with the chain's shadow: same, different, or undecided by memory.",
		[]string{"chain", "result"}, nil,
	)
)

// chainDecisionsDesc has a series for each rule and outcome that was decided; a chain counts at
// most 80 rules by name.
var chainDecisionsDesc = prometheus.NewDesc(
	"freeslot_namelist_chain_decisions_total",
	"Decisions of a chain by the rule that made them, (default) where none did, and by outcome.",
	[]string{"chain", "rule", "outcome"}, nil,
)

func (m chainMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- chainDecisionsDesc
	out <- chainVersionDesc
	out <- chainShadowDesc
}

func (m chainMetrics) Collect(out chan<- prometheus.Metric) {
	names := sortedNames(&m.c.chains)
	for _, name := range names[:min(listSeries, len(names))] {
		found, _ := m.c.chains.Load(name)
		c := found.(*Chain)
		version := float64(c.state.Load().status.Version)
		out <- prometheus.MustNewConstMetric(chainVersionDesc, prometheus.GaugeValue, version, name)
		var all count.RuleCounts
		for rule, counts := range c.counts.Totals() {
			all.Add(&counts)
			for cell, outcome := range count.OutcomeNames {
				if n := counts[cell]; n > 0 {
					out <- prometheus.MustNewConstMetric(
						chainDecisionsDesc, prometheus.CounterValue, float64(n), name, rule, outcome)
				}
			}
		}
		for i, result := range count.ShadowNames {
			n := float64(all[count.ShadowSame+i])
			out <- prometheus.MustNewConstMetric(chainShadowDesc, prometheus.CounterValue, n, name, result)
		}
	}
}
