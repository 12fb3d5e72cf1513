package replica

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/dispatch"
)

const (
	// anyPool is the label of jobs that ask for no pool, and of the slots of all nodes.
	anyPool = "any"
	// otherPool is the label of jobs that ask for a pool that is not configured.
	otherPool = "other"
)

// poolGauges tells what waits for each configured pool, and what is free there.
type poolGauges struct {
	fleet                 *fleet
	jobs                  *dispatch.Dispatcher
	waiting, oldest, free *prometheus.Desc
}

func newPoolGauges(f *fleet, d *dispatch.Dispatcher) *poolGauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"pool"}, nil)
	}
	return &poolGauges{
		fleet: f, jobs: d,
		waiting: desc("freeslot_pool_waiting_jobs",
			"Jobs that wait for a slot, by the configured pool that they ask for; any if they ask for none, other if it is "+
				"not configured. All replicas report the same."),
		oldest: desc("freeslot_pool_oldest_waiting_seconds",
			"How long ago the oldest of these jobs was submitted; 0 where none waits."),
		free: desc("freeslot_pool_free_slots",
			"Free slots of the nodes that may get jobs, by configured pool; any for all nodes."),
	}
}

func (g *poolGauges) collect(to chan<- prometheus.Metric, now time.Time) {
	tell := func(d *prometheus.Desc, value float64, pool string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, pool)
	}
	pools := g.fleet.cache.Config().Pools
	if waits := g.jobs.PoolBacklogs(); waits != nil {
		labelled := map[string]dispatch.PoolBacklog{anyPool: waits[""], otherPool: {}}
		delete(waits, "")
		for i := range pools {
			labelled[pools[i].ID] = waits[pools[i].ID]
			delete(waits, pools[i].ID)
		}
		for _, n := range waits {
			labelled[otherPool] = labelled[otherPool].Plus(n)
		}
		for pool, n := range labelled {
			age := 0.0
			if n.OldestMS > 0 {
				age = max(now.Sub(time.UnixMilli(n.OldestMS)).Seconds(), 0)
			}
			tell(g.waiting, float64(n.Waiting), pool)
			tell(g.oldest, age, pool)
		}
	}
	if health := g.fleet.cache.Health(); health.Synced && !health.Stale { // otherwise nodes seem silent
		all, byPool := g.fleet.cache.FreeSlots(g.fleet.cache.SilenceLimit())
		tell(g.free, float64(all), anyPool)
		for i := range pools {
			if id := pools[i].ID; id != anyPool {
				tell(g.free, float64(byPool[id]), id)
			}
		}
	}
}
