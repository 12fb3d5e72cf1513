package dispatch

import (
	"fmt"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// noNodeError says that no node could ever run the job, that this replica does not know, or that
// such a node may be back soon.
func (d *Dispatcher) noNodeError(p *placement) error {
	job := p.request.Job
	if refusing, reason := d.refusing(); refusing > 0 {
		return unavailable("no node is known to fit, but Redis refuses writes, and so heartbeats: %s", reason)
	}
	if d.nodes.Stale() || d.nodes.Skip()|p.refusedCells|d.failing.load() != 0 {
		return unavailable("no node is known to fit, but this replica has lost touch with Redis")
	}
	q := d.query(p)
	message := fmt.Sprintf("none of %d nodes can run service %s with this requirement", d.nodes.Size(), job.Service)
	if d.nodes.MayReturn(job) {
		return unavailable("%s, but nodes that are new, fell silent or were forgotten by Redis may be there soon", message)
	}
	// A node may have come back after the search and before the check of absent nodes.
	if couldRun(d.nodes.Settle(job.Service, &job.Requirement), job) {
		return unavailable("a node that can run service %s has just come back", job.Service)
	}
	if pool := job.Requirement.Pool; pool != "" && !d.hasPool(pool) {
		message += ": there is no pool " + pool + ", by configuration or by a node that names it"
	}
	return &freeslot.Error{Code: freeslot.CodeNoMatchingNode, Message: message, Breakdown: p.class.Breakdown(&q)}
}

// hasPool reports whether a pool is configured, or named by a node.
func (d *Dispatcher) hasPool(id string) bool {
	configured := slices.ContainsFunc(d.nodes.Config().Pools, func(p selection.Pool) bool { return p.ID == id })
	return configured || slices.ContainsFunc(d.nodes.AllNodes(), func(n *selection.Node) bool {
		return slices.Contains(n.Profile().Node().Pools, id)
	})
}

// noCellError says why the job cannot even wait: no call can be sent now to the cells that have
// fitting nodes.
func (d *Dispatcher) noCellError(p *placement, cells *classCells) error {
	away, outOfMemory, lackReplicas := d.nodes.Skip()|p.refusedCells, d.outOfMemory.load(), d.lackReplicas.load()
	for i := range d.byCell {
		switch {
		case !cells.takes(i, p.request.Job, away):
		case outOfMemory.Has(i):
			return outOfMemoryError()
		case lackReplicas.Has(i):
			return d.tooFewReplicasError()
		}
	}
	if p.refusedWith != nil {
		return coded("submit", p.refusedWith)
	}
	if refusing, reason := d.refusing(); refusing > 0 {
		return unavailable(
			"the nodes that can run service %s are in a part of Redis that refuses writes: %s", p.request.Job.Service, reason,
		)
	}
	return unavailable(
		"the nodes that can run service %s are in a part of Redis that does not answer or takes no writes",
		p.request.Job.Service,
	)
}
