package replica

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/dispatch"
)

// gauges tells Prometheus what every replica sees of the whole system.
type gauges struct {
	fleet               *fleet
	jobs                *dispatch.Dispatcher
	nodes, slots, bytes *prometheus.Desc
	memory              *prometheus.Desc
	pools               *poolGauges
}

func newGauges(f *fleet, d *dispatch.Dispatcher, reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	reg.MustRegister(&gauges{
		fleet: f, jobs: d, pools: newPoolGauges(f, d),
		nodes: prometheus.NewDesc("freeslot_nodes",
			"Nodes by state: online, draining or silent; none while the cache is stale.", []string{"state"}, nil),
		slots: prometheus.NewDesc("freeslot_slots",
			"Slots of the nodes that are not silent: used, and all.", []string{"state"}, nil),
		bytes: prometheus.NewDesc("freeslot_redis_memory_bytes",
			"Memory in use of the servers of Redis that answer, each once.", nil, nil),
		memory: prometheus.NewDesc("freeslot_redis_memory_ratio",
			"The largest share of its maxmemory that a server of Redis uses, 0 to 1; absent while none with a limit answers.",
			nil, nil),
	})
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	to <- g.nodes
	to <- g.slots
	to <- g.bytes
	to <- g.memory
	to <- g.pools.waiting
	to <- g.pools.oldest
	to <- g.pools.free
}

// Collect implements prometheus.Collector. It asks no one.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	tell := func(d *prometheus.Desc, n int64, state ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), state...)
	}
	if g.fleet.cache.Health().Synced && !g.fleet.cache.Stale() { // otherwise nodes seem silent
		n := g.fleet.cache.Count(g.fleet.cache.SilenceLimit())
		tell(g.nodes, int64(n.Online), "online")
		tell(g.nodes, int64(n.Draining), "draining")
		tell(g.nodes, int64(n.Silent), "silent")
		tell(g.slots, int64(n.SlotsUsed), "used")
		tell(g.slots, int64(n.Slots), "all")
	}
	g.pools.collect(to, time.Now())
	if of := g.jobs.Figures(); of.Cells > 0 {
		tell(g.bytes, of.MemoryBytes)
	}
	share := -1.0
	for _, load := range g.jobs.Loads() {
		if load != nil && load.LimitBytes > 0 {
			share = max(share, load.MemoryUse())
		}
	}
	if share >= 0 {
		to <- prometheus.MustNewConstMetric(g.memory, prometheus.GaugeValue, share)
	}
}
