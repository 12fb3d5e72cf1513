package cache

import (
	"maps"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// maxAway bounds the nodes that are remembered. If more are away at the same time, any job may find
// its node again.
const maxAway = 1000

// awayNodes holds the nodes that no agent or operator removed: they were reaped, or Redis lost
// them.
type awayNodes struct {
	mu    sync.Mutex
	nodes map[string]awayNode // guarded by mu
	// manyUntil is the time until which further nodes are away that are not in nodes. Guarded by
	// mu.
	manyUntil int64
}

type awayNode struct {
	node  *selection.Node
	until int64
}

// add remembers a node for limit.
func (a *awayNodes) add(node *selection.Node, now int64, limit time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until := now + int64(limit)
	if len(a.nodes) >= maxAway && now >= a.manyUntil {
		a.forget(now)
	}
	if len(a.nodes) >= maxAway {
		a.manyUntil = until
		return
	}
	if a.nodes == nil {
		a.nodes = make(map[string]awayNode)
	}
	a.nodes[node.ID()] = awayNode{node, until}
}

// forget drops the nodes whose time is over. The caller holds mu.
func (a *awayNodes) forget(now int64) {
	maps.DeleteFunc(a.nodes, func(_ string, n awayNode) bool { return now >= n.until })
}

// back forgets a node that has registered again.
func (a *awayNodes) back(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.nodes, id)
}

// list returns the nodes that are away now. many is true if it does not know all of them.
func (a *awayNodes) list(now int64) (nodes []*selection.Node, many bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(now)
	for _, n := range a.nodes {
		nodes = append(nodes, n.node)
	}
	return nodes, now < a.manyUntil
}

// MayReturn reports whether a node that fits the job may be back soon, although none is known.
// Either such a node was reaped or lost less than a heartbeat limit ago. Or the records of a cell
// began so recently that not all nodes can have registered. A node that left, or whose profile
// changed, is not expected back. After MayReturn returns false, Settle includes every node that has
// come back. Do not call it for a job that has a fitting node: it is slow.
func (c *Cache) MayReturn(job *freeslot.Job) bool {
	now := c.clock.now()
	for _, f := range c.followers {
		if began := f.beganAt.Load(); began != longAgo && now-began < int64(c.SilenceLimit()) {
			return true
		}
	}
	nodes, many := c.away.list(now)
	if many || len(nodes) == 0 {
		return many
	}
	class := selection.NewClass(nodes, c.Config(), job.Service, &job.Requirement)
	return class.Fits() > 0 && job.SlotCount() <= class.MaxSlots()
}
