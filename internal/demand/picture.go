package demand

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

// mostPools bounds the pools of a picture: the configured ones, and others that nodes or jobs name.
const mostPools = 1000

// Demand is what jobs need, of one pool or of one service in it. Its tags document its fields.
type Demand struct {
	UsedSlots    int      `json:"used_slots" doc:"Slots that jobs use on the nodes that may get jobs. Of a service: on its nodes, by jobs of any service."`
	FreeSlots    int      `json:"free_slots" doc:"Free slots of these nodes."`
	WaitingJobs  int      `json:"waiting_jobs" doc:"Jobs that wait for a slot. Without those that a limit of a tenant or of a concurrency key holds back: more nodes would not help them."`
	PausedJobs   int      `json:"paused_jobs,omitempty" doc:"How many of them begin on no node because of a pause. They are not wanted."`
	DueJobs      int      `json:"due_jobs" doc:"Jobs for later, and jobs before their next attempt, that will wait within a minute. Exact up to 512 times of jobs in a cell and minute, beyond that an estimate."`
	WantedSlots  int      `json:"wanted_slots" doc:"Slots of the waiting and due jobs. The slots of waiting jobs are estimated by the mean slots of the jobs that came."`
	OldestWaitMS int64    `json:"oldest_wait_ms" doc:"How long ago the oldest of the waiting jobs that are not paused was submitted; 0 without one."`
	Arrivals     float64  `json:"arrivals" doc:"Accepted jobs per second at all replicas together, averaged over about a minute. Without jobs for later."`
	RunMS        *float64 `json:"run_ms,omitempty" doc:"The mean run time, averaged over about five minutes. Of a service: of the jobs whose clients awaited them; absent without one. Of a pool: the same if they are at least half of the jobs, otherwise its used slots divided by the slots that began to be used per second (Little's law)."`
}

// ServiceDemand is what the jobs of one service need in a pool.
type ServiceDemand struct {
	Service string `json:"service" doc:"Empty for jobs without a service."`
	Demand
}

// PoolDemand is what the jobs of a pool need. Its tags document its fields.
type PoolDemand struct {
	Pool     string `json:"pool" doc:"Empty for jobs that count for no pool, and for nodes that are in none."`
	Nodes    int    `json:"nodes" doc:"Nodes in the pool that may get jobs: neither draining nor silent."`
	Draining int    `json:"draining" doc:"Nodes in the pool that drain."`
	// BusyNodes is documented in its tag.
	BusyNodes int `json:"busy_nodes" doc:"Nodes in the pool that run jobs, those that drain among them."`
	Slots     int `json:"slots" doc:"All slots of the nodes that may get jobs."`
	// TargetWaitMS and NodesWanted are documented in their tags.
	TargetWaitMS int64 `json:"target_wait_ms,omitempty" doc:"The pool's target_wait; absent without one."`
	NodesWanted  *int  `json:"nodes_wanted,omitempty" doc:"How many nodes would keep waits within target_wait, never fewer than the used slots need. It rises at once, and falls after five minutes of a smaller need. Absent without target_wait, and while nodes or cells are not known."`
	Demand
	Services []ServiceDemand `json:"services" doc:"By service, for those with jobs of late, in the order of their names. A node with several services counts for each."`
}

// DemandList lists what jobs need. Its tags document its fields.
type DemandList struct {
	Pools       []PoolDemand `json:"pools" doc:"The configured ones in their order, then others that nodes or jobs name, then the jobs and nodes without a pool. At most 1000. A node in several pools counts in each, a job in one."`
	AtMS        int64        `json:"at_ms" doc:"When the figures were put together, by the replica's clock, in milliseconds since 1970: every five seconds."`
	Stale       bool         `json:"stale,omitempty" doc:"Whether the replica does not know all nodes now. Slots and nodes are then those that it last knew of."`
	Unreachable []int        `json:"unreachable,omitempty" doc:"The cells that did not answer, whose jobs are not counted."`
}

// pools collects the pools of a picture.
type pools struct {
	list []*poolRow
	byID map[string]*poolRow
}

type poolRow struct {
	PoolDemand
	configured bool
	// target is the pool's target_wait; 0 for none. expected is how many slots a new node will have,
	// 0 if the pool does not say.
	target   time.Duration
	expected int
	// drainingSlots is the slots of the draining nodes.
	drainingSlots int
	services      map[string]*serviceRow
	// waitingSlots is the part of WantedSlots that waits.
	waitingSlots float64
	// slotArrivals is the slots of arriving jobs per second.
	slotArrivals float64
}

type serviceRow struct {
	ServiceDemand
	// counted is the last node that counts: a node may list a service in several versions.
	counted *selection.Node
}

func newPools(cfg *selection.Config) *pools {
	p := &pools{byID: make(map[string]*poolRow)}
	if cfg.Enabled {
		for i := range cfg.Pools {
			row := p.of(cfg.Pools[i].ID)
			row.configured, row.target = true, cfg.Pools[i].Target()
			if expects := cfg.Pools[i].Expects; expects != nil {
				row.expected = max(expects.Slots, 1)
			}
			row.TargetWaitMS = row.target.Milliseconds()
		}
	}
	return p
}

// slotsPerNode returns how many slots one more node of the pool brings. before is its last answer,
// for a pool that has become empty; 0 for the first.
func (r *poolRow) slotsPerNode(before float64) float64 {
	switch {
	case r.Nodes > 0:
		return max(float64(r.Slots)/float64(r.Nodes), 1)
	case r.expected > 0:
		return float64(r.expected)
	case r.Draining > 0:
		return max(float64(r.drainingSlots)/float64(r.Draining), 1)
	default:
		return max(before, 1)
	}
}

// of returns the row of a pool; nil if there are too many.
func (p *pools) of(id string) *poolRow {
	row := p.byID[id]
	if row == nil && len(p.list) < mostPools {
		row = &poolRow{PoolDemand: PoolDemand{Pool: id}, services: make(map[string]*serviceRow)}
		p.byID[id], p.list = row, append(p.list, row)
	}
	return row
}

// addJobs adds the jobs of one kind.
func (p *pools) addJobs(k dispatch.Kind, b dispatch.KindBacklog, r *rates, now time.Time) {
	row := p.of(k.Pool)
	if row == nil {
		return
	}
	waitingSlots := float64(b.Waiting-b.Paused) * r.slotsPerJob()
	d := Demand{
		WaitingJobs: b.Waiting, PausedJobs: b.Paused, DueJobs: b.Due, WantedSlots: int(waitingSlots+0.5) + b.DueSlots,
		Arrivals: math.Round(r.arrivals*1000) / 1000, RunMS: millis(r.run()),
	}
	if b.OldestMS > 0 {
		d.OldestWaitMS = max(now.Sub(time.UnixMilli(b.OldestMS)).Milliseconds(), 0)
	}
	row.services[k.Service] = &serviceRow{ServiceDemand: ServiceDemand{Service: k.Service, Demand: d}}
	row.waitingSlots += waitingSlots
	row.WaitingJobs, row.PausedJobs = row.WaitingJobs+d.WaitingJobs, row.PausedJobs+d.PausedJobs
	row.DueJobs, row.WantedSlots = row.DueJobs+d.DueJobs, row.WantedSlots+d.WantedSlots
	row.Arrivals += d.Arrivals
	row.OldestWaitMS = max(row.OldestWaitMS, d.OldestWaitMS)
}

// addNodes adds the nodes. Jobs come first: a node counts for the services that have jobs.
func (p *pools) addNodes(nodes iter.Seq[*selection.Node], cfg *selection.Config) {
	for n := range nodes {
		profile, in := n.Profile(), false
		add := func(id string) {
			if row := p.of(id); row != nil {
				row.addNode(n)
			}
			in = true
		}
		cfg.EachPool(profile, add)
		for _, id := range profile.Node().Pools {
			if row := p.byID[id]; row == nil || !row.configured {
				add(id)
			}
		}
		if !in {
			add("")
		}
	}
}

func (r *poolRow) addNode(n *selection.Node) {
	used, _ := n.Load()
	if used > 0 {
		r.BusyNodes++
	}
	if n.Draining() {
		r.Draining++
		r.drainingSlots += n.Max()
		return
	}
	free := max(n.Max()-used, 0)
	r.Nodes++
	r.Slots += n.Max()
	r.UsedSlots, r.FreeSlots = r.UsedSlots+used, r.FreeSlots+free
	offered := n.Profile().Node().Services
	for i := range offered {
		if s := r.services[offered[i].Name]; s != nil && s.counted != n {
			s.counted = n
			s.UsedSlots, s.FreeSlots = s.UsedSlots+used, s.FreeSlots+free
		}
	}
}

// sorted returns the pools in the order of an answer.
func (p *pools) sorted() []PoolDemand {
	others := slices.IndexFunc(p.list, func(r *poolRow) bool { return !r.configured })
	if others >= 0 {
		slices.SortFunc(p.list[others:], func(a, b *poolRow) int {
			if a.Pool == "" || b.Pool == "" {
				return cmp.Compare(len(b.Pool), len(a.Pool)) // without a pool last
			}
			return strings.Compare(a.Pool, b.Pool)
		})
	}
	all := make([]PoolDemand, len(p.list))
	for i, row := range p.list {
		row.Services = make([]ServiceDemand, 0, len(row.services))
		for _, s := range row.services {
			row.Services = append(row.Services, s.ServiceDemand)
		}
		slices.SortFunc(row.Services, func(a, b ServiceDemand) int { return strings.Compare(a.Service, b.Service) })
		all[i] = row.PoolDemand
	}
	return all
}

// millis returns seconds in milliseconds; nil for 0.
func millis(seconds float64) *float64 {
	if seconds <= 0 {
		return nil
	}
	ms := seconds * 1000
	return &ms
}
