package cache

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Glance is what one look finds of a node. It shares memory with the cache, so nothing in it may be
// changed.
type Glance struct {
	ID        string
	Cell      int
	Used, Max int
	Status    freeslot.Status
	// Age is the time since the last sign of life; negative: there was none. While the node's cell
	// does not answer it is the age at the cell's last answer.
	Age time.Duration
	// Silent is true if choices leave the node out for its age.
	Silent bool
	// Epoch and Profile are other ones after the node's agent or its profile has changed.
	Epoch   cell.Epoch
	Profile *selection.Profile
	// Resources is what the agent said last of the machine, and another pointer once it has said
	// more. It may be nil, and need not be valid JSON.
	Resources *string
}

// Glance calls see for each node, in any order. Cost: one look at every node, without copies.
func (c *Cache) Glance(see func(g *Glance)) {
	now, limit := c.clock.now(), c.SilenceLimit()
	by := make([]int64, len(c.followers)) // the time at which each cell is looked at
	for i, f := range c.followers {
		by[i] = now
		if h := f.health(); h.Stale || h.Unreachable {
			by[i] -= int64(h.Age)
		}
	}
	var g Glance
	for id, e := range c.nodes.Range {
		used, _ := e.node.Load()
		g = Glance{
			ID: id, Cell: e.node.Cell(), Used: used, Max: e.node.Max(), Status: e.status(), Age: -1, Silent: true,
			Epoch: e.incarnation.Load().epoch, Profile: e.node.Profile(), Resources: e.resources.Load(),
		}
		if at, seen := e.node.SeenAt(); seen {
			g.Age = max(0, time.Duration(by[g.Cell]-at))
			g.Silent = g.Age > limit
		}
		see(&g)
	}
}
