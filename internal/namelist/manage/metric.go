package manage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/namelist"
)

// states lists the states that a list can be in.
var states = []namelist.State{
	namelist.Draft, namelist.Active, namelist.Editing, namelist.Importing, namelist.Expanding, namelist.Switching,
	namelist.Frozen, namelist.Deleting,
}

// expiresSoon is how long before its expiry a list counts as expiring soon.
const expiresSoon = 24 * time.Hour

// metrics holds a manager's metrics. None is labelled by list: the log names the list.
type metrics struct {
	lists                     *prometheus.GaugeVec // by state
	edits, expiring, damaged  prometheus.Gauge
	running                   prometheus.Gauge
	operations                *prometheus.HistogramVec // by kind, result
	ids, uploaded             prometheus.Counter
	compactionsLate           prometheus.Counter
	damages, takenOver, swept prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "freeslot", Subsystem: "lists", Name: name, Help: help}
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	m := &metrics{
		lists: prometheus.NewGaugeVec(
			prometheus.GaugeOpts(opts("lists", "Lists by state. All replicas report the same.")), []string{"state"},
		),
		edits: gauge(
			"edits",
			"Entries in the edits of the list that has most since its version was built: compaction begins at 25,000, "+
				"ordinary edits are refused from 50,000 on. All replicas report the same.",
		),
		expiring: gauge("expiring", "Lists that have expired, or will within a day. All replicas report the same."),
		damaged:  gauge("damaged", "Lists whose serving version is damaged. All replicas report the same."),
		running:  gauge("operations_running", "Imports, other builds and switches that this replica carries out."),
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "freeslot", Subsystem: "lists", Name: "operation_seconds",
			Help: "Time of operations of this replica, by kind and result: done, failed, lost (its lease) or interrupted " +
				"(the replica stops).",
			Buckets: []float64{.1, .3, 1, 3, 10, 30, 100, 300, 1000, 3000},
		}, []string{"kind", "result"}),
		ids:      counter("built_ids_total", "Ids of the versions that this replica built."),
		uploaded: counter("upload_bytes_total", "Bytes of uploads that this replica received."),
		compactionsLate: counter(
			"late_compactions_total",
			"Times that a compaction was due and could not begin: the log has the list and the reason.",
		),
		damages:   counter("damages_total", "Times that this replica found a version damaged."),
		takenOver: counter("taken_over_total", "Operations of silent replicas that this one ended."),
		swept:     counter("swept_builds_total", "Versions and ended builds whose keys this replica removed."),
	}
	m.round(&round{}) // so that all states are there from the start
	if reg != nil {
		reg.MustRegister(
			m.lists, m.edits, m.expiring, m.damaged, m.running, m.operations, m.ids, m.uploaded, m.compactionsLate, m.damages,
			m.takenOver, m.swept,
		)
	}
	return m
}

// round holds what one round over all lists has seen.
type round struct {
	serving                  map[string]*namelist.Version // by list
	states                   map[namelist.State]int
	edits, expiring, damaged int64
}

func (r *round) saw(h *namelist.Head) {
	r.states[h.State]++
	if !h.Expires.IsZero() && h.Expires.Sub(h.At) < expiresSoon {
		r.expiring++
	}
	if h.Serving == nil {
		return
	}
	r.serving[h.Name] = h.Serving
	r.edits = max(r.edits, h.Edited-h.Serving.Edited)
	if h.Serving.Damaged != "" {
		r.damaged++
	}
}

func (m *metrics) round(r *round) {
	for _, s := range states {
		m.lists.WithLabelValues(string(s)).Set(float64(r.states[s]))
	}
	m.edits.Set(float64(r.edits))
	m.expiring.Set(float64(r.expiring))
	m.damaged.Set(float64(r.damaged))
}
