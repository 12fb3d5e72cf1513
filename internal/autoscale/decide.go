package autoscale

import "github.com/freeslot/freeslot/internal/demand"

// unknown is the number of nodes in the last run while there was none.
const unknown = -1

// step is what to do for a pool.
type step int

const (
	rest   step = iota
	run         // the command, with the number
	adopt       // note the number as the last one, without a run
	refuse      // nothing, because more nodes run jobs than are allowed
)

// decide returns the number of nodes that a pool with a proposal should have, and what to do. last is
// the number in the last run, or unknown. silent is true while a registered node is silent, so that
// its jobs are not known.
//
// The number is what is proposed, within the bounds, and the nodes that drain, because these still
// are machines. It is never below the nodes that run jobs. Fewer than before, or than there are, are
// asked for only while nothing is wrong: jobs begin within the target, and no node is silent. A
// system whose Redis was lost, or that only looks like this one, does not begin with that, either.
func (c *Config) decide(p *demand.PoolDemand, last int, silent bool) (nodes int, do step) {
	there := p.Nodes + p.Draining
	nodes = min(max(*p.NodesWanted, c.MinNodes)+p.Draining, c.MaxNodes)
	if p.BusyNodes > c.MaxNodes {
		return p.BusyNodes, refuse
	}
	nodes = max(nodes, p.BusyNodes)
	fewer := nodes < there || nodes < last
	switch {
	case last == unknown && there > 0 && (nodes <= there || p.WantedSlots == 0):
		return there, adopt
	case last == unknown && p.WantedSlots == 0:
		return nodes, rest
	case fewer && (silent || p.OldestWaitMS > p.TargetWaitMS):
		return nodes, rest
	case fewer || nodes > there:
		return nodes, run
	default:
		return nodes, rest
	}
}
