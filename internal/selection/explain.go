package selection

// This file explains a requirement against the whole fleet: which nodes would qualify now for a job
// with it, and why each other node does not. It serves POST /v1/explain and `schedctl explain`. It
// knows no job ids: internal/api/explain_job.go explains why one job waits.

import (
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// Explanation says how a job would be placed now: which nodes qualify, and the reason against each
// of the others.
type Explanation struct {
	Service string `json:"service"`
	// Class is the job's class in canonical form, its parts separated by "; ".
	Class string `json:"class"`
	// Mode and Policy are the ones in force.
	Mode   Mode   `json:"mode"`
	Policy Policy `json:"policy"`
	// Total counts all nodes, Fits the nodes that could run the job if they were idle and healthy,
	// and Qualify the nodes that could be chosen now.
	Total   int `json:"total"`
	Fits    int `json:"fits"`
	Qualify int `json:"qualify"`
	// MaxSlots is the largest max_concurrency among the nodes that fit, or would fit with more
	// slots.
	MaxSlots int `json:"max_slots"`
	// Expected lists the pools whose nodes will fit, if no node fits that runs.
	Expected []string `json:"expected_pools,omitempty" doc:"The pools whose nodes, which do not run yet, will fit; absent where a node fits."`
	// Tiers are in the order in which they are tried, including tiers without a node.
	Tiers []TierExplanation `json:"tiers"`
	// Breakdown counts the nodes that do not qualify, by reason.
	Breakdown map[string]int `json:"breakdown"`
	// Nodes are in the order in which they were given.
	Nodes []NodeExplanation `json:"nodes"`
}

// TierExplanation is one list of candidates of equal rank.
type TierExplanation struct {
	// Pool is the pool whose members the tier holds; empty means any node.
	Pool string `json:"pool,omitempty"`
	// Preferred is true if the tier comes first because the job prefers its pool.
	Preferred bool `json:"preferred,omitempty"`
	Fits      int  `json:"fits"`
	Qualify   int  `json:"qualify"`
}

// NodeExplanation is one node as the job sees it.
type NodeExplanation struct {
	Node string `json:"node"`
	Cell int    `json:"cell"`
	// Reason is the first reason against the node; empty if it qualifies.
	Reason Reason `json:"reason,omitempty"`
	// Detail says what the node has and what the job needs, in words; empty if it qualifies.
	Detail string `json:"detail,omitempty"`
	// Fits is true if the profile fits and has the slots that the job asks for. Tier is then an
	// index of Explanation.Tiers, otherwise -1.
	Fits bool `json:"fits"`
	Tier int  `json:"tier"`
	// Pools lists all pools that the node is in.
	Pools []string `json:"pools,omitempty"`
	// Used is the number of slots in use as last heard, Pending the number of slots that this
	// replica has taken without an answer yet, and Max is max_concurrency.
	Used    int `json:"used"`
	Pending int `json:"pending"`
	Max     int `json:"max_concurrency"`
}

// Explain returns how a job of "service with requirement r" would be placed now. r must be valid.
// With the same arguments it agrees with [NewClass], [Class.Breakdown] and [Class.Choose], with one
// exception: a node with too few slots in all is in the class, because another job may ask for
// fewer, but does not fit this job. It ignores q.Want, q.Samples and q.AffinityKey. A nil cfg means
// the zero Config. Cost: some microseconds a node.
func Explain(nodes []*Node, cfg *Config, service string, r *freeslot.Requirement, q *Query) Explanation {
	full, prepared := cfg.WithDefaults(), compile(cfg)
	f := newFilter(prepared, service, r)
	e := Explanation{
		Service: service, Class: readableClass(service, r), Mode: full.Mode, Policy: full.Policy,
		Total: len(nodes), Tiers: f.explainTiers(), Breakdown: make(map[string]int),
		Nodes: make([]NodeExplanation, len(nodes)),
	}
	for i, n := range nodes {
		x := f.explain(n, q)
		if x.Reason == ReasonPool && r.Pool == "" {
			x.Detail += f.whyPools()
		}
		x.Pools = prepared.members(n.Profile())
		e.Nodes[i] = x
		e.count(&x)
	}
	if e.Fits == 0 {
		for _, pool := range cfg.Expecting(service, r, q.need().slots) {
			e.Expected = append(e.Expected, pool.Pool)
		}
	}
	return e
}

func readableClass(service string, r *freeslot.Requirement) string {
	form := string(class.AppendCanonical(nil, service, r))
	return strings.NewReplacer("\x00", "; ", "\x01", "; ", "\x02", " ", "\x03", "; feature ").Replace(form)
}

func (f *filter) explainTiers() []TierExplanation {
	tiers := make([]TierExplanation, f.tierCount())
	for i := range tiers {
		tiers[i] = TierExplanation{Pool: f.tierPool(i), Preferred: f.preferred != nil && i == 0}
	}
	return tiers
}

func (f *filter) explain(n *Node, q *Query) NodeExplanation {
	p := n.Profile()
	used, pending := n.Load()
	x := NodeExplanation{Node: n.ID(), Cell: n.Cell(), Tier: -1, Used: used, Pending: pending, Max: n.Max()}
	tier, why := f.match(p)
	if why != "" {
		x.Reason, x.Detail = why, f.mismatch(p, why)
		return x
	}
	tier, halt := f.running(p, tier)
	if halt != "" {
		x.Reason, x.Detail = ReasonPaused, pausedDetail(halt)
		if q.need().slots <= n.Max() {
			x.Fits, x.Tier = true, tier
		}
		return x
	}
	if why = q.check(n); why != "" {
		x.Reason, x.Detail = why, q.detail(n, why)
	}
	if why != ReasonSlots {
		x.Fits, x.Tier = true, tier
	}
	return x
}

func (e *Explanation) count(x *NodeExplanation) {
	if x.Reason != "" {
		e.Breakdown[string(x.Reason)]++
	}
	if x.Fits || x.Reason == ReasonSlots || x.Reason == ReasonPaused {
		e.MaxSlots = max(e.MaxSlots, x.Max)
	}
	if !x.Fits {
		return
	}
	e.Fits++
	e.Tiers[x.Tier].Fits++
	if x.Reason == "" {
		e.Qualify++
		e.Tiers[x.Tier].Qualify++
	}
}
