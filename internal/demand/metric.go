package demand

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// mostSeries bounds the series of each metric by service. The services with the fewest wanted slots
// and arrivals have none.
const mostSeries = 200

// gauges tells Prometheus the last picture.
type gauges struct {
	watch                         *Watch
	nodes, proposed, used, run    *prometheus.Desc
	wanted, oldest, arrivals, ran *prometheus.Desc
}

// Collector returns the metrics of the demand. It asks no one.
func (w *Watch) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help+" All replicas report nearly the same: take the max, not the sum.", labels, nil)
	}
	return &gauges{
		watch: w,
		nodes: desc("freeslot_pool_nodes",
			"Nodes in a pool that may get jobs, by pool; empty if in no pool. A node in several counts in each.", "pool"),
		proposed: desc("freeslot_pool_nodes_wanted",
			"How many nodes would keep waits within the pool's target_wait; absent without one, and while nodes or cells are "+
				"not known.", "pool"),
		used: desc("freeslot_pool_used_slots", "Slots in use on these nodes.", "pool"),
		run: desc("freeslot_pool_run_seconds",
			"Mean run time of the jobs of a pool over about five minutes; absent while it is not known.", "pool"),
		wanted: desc("freeslot_demand_wanted_slots",
			"Slots of the jobs that wait or are due within a minute, by the pool that they count for and by service; for the "+
				"200 largest.", "pool", "service"),
		oldest: desc("freeslot_demand_oldest_wait_seconds",
			"How long ago the oldest of the jobs that wait was submitted; 0 where none waits.", "pool", "service"),
		arrivals: desc("freeslot_demand_arrivals_per_second",
			"Accepted jobs per second at all replicas together, over about a minute.", "pool", "service"),
		ran: desc("freeslot_demand_run_seconds",
			"Mean run time of the jobs of late whose clients awaited them; absent without one.", "pool", "service"),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.nodes, g.proposed, g.used, g.run, g.wanted, g.oldest, g.arrivals, g.ran} {
		to <- d
	}
}

// Collect implements prometheus.Collector. While nodes or cells are not known, it tells nothing of
// them: a scaler must not take an outage for an idle fleet.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	list := g.watch.Current()
	tell := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for i := range list.Pools {
		p := &list.Pools[i]
		if !list.Stale {
			tell(g.nodes, float64(p.Nodes), p.Pool)
			tell(g.used, float64(p.UsedSlots), p.Pool)
		}
		if p.NodesWanted != nil {
			tell(g.proposed, float64(*p.NodesWanted), p.Pool)
		}
		if p.RunMS != nil {
			tell(g.run, *p.RunMS/1000, p.Pool)
		}
	}
	for _, s := range largest(list.Pools) {
		if len(list.Unreachable) == 0 {
			tell(g.wanted, float64(s.WantedSlots), s.pool, s.Service)
			tell(g.oldest, float64(s.OldestWaitMS)/1000, s.pool, s.Service)
		}
		tell(g.arrivals, s.Arrivals, s.pool, s.Service)
		if s.RunMS != nil {
			tell(g.ran, *s.RunMS/1000, s.pool, s.Service)
		}
	}
}

type serviceOf struct {
	pool string
	*ServiceDemand
}

// largest returns the services with the most wanted slots and arrivals.
func largest(pools []PoolDemand) (all []serviceOf) {
	for i := range pools {
		for j := range pools[i].Services {
			all = append(all, serviceOf{pools[i].Pool, &pools[i].Services[j]})
		}
	}
	if len(all) <= mostSeries {
		return all
	}
	slices.SortStableFunc(all, func(a, b serviceOf) int {
		return cmp.Or(cmp.Compare(b.WantedSlots, a.WantedSlots), cmp.Compare(b.Arrivals, a.Arrivals))
	})
	return all[:mostSeries]
}
