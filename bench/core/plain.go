package main

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// plainFleet is the simplest baseline: the fleet in one map under one RWMutex, without a snapshot.
// Heartbeats change the node in place under the write lock, and choices hold the read lock.
type plainFleet struct {
	config *selection.Config

	mu      sync.RWMutex // guards everything below
	nodes   map[string]*plainNode
	classes map[uint64]*plainClass
}

type plainNode struct {
	state cell.NodeState
	node  *selection.Node
}

type plainClass struct {
	identity *selection.Identity
	class    *selection.Class
}

func newPlainFleet(cfg *selection.Config) *plainFleet {
	return &plainFleet{config: cfg, nodes: make(map[string]*plainNode), classes: make(map[uint64]*plainClass)}
}

// Put adds a node.
func (p *plainFleet) Put(state *cell.NodeState) {
	node := state.Node
	added := &plainNode{state: *state, node: selection.NewNode(selection.Compile(&node), 0)}
	added.node.SetUsed(state.Used)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes[node.ID] = added
	clear(p.classes)
}

// Heartbeat is a sign of life of a node that was put.
func (p *plainFleet) Heartbeat(id string, used int, status freeslot.Status, seenAt int64, resources string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[id]
	n.state.Used, n.state.Status, n.state.Resources = used, status, json.RawMessage(resources)
	n.node.SetUsed(used)
	n.node.SetDraining(status != freeslot.StatusOnline)
	n.node.Seen(seenAt)
}

// Choose appends candidates for "service with requirement r" to dst.
func (p *plainFleet) Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node {
	hash := class.Hash(service, r)
	p.mu.RLock()
	if known := p.classes[hash]; known != nil && known.identity.Is(service, r) {
		defer p.mu.RUnlock()
		return known.class.Choose(dst, q, rnd)
	}
	p.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	nodes := make([]*selection.Node, 0, len(p.nodes))
	for _, n := range p.nodes {
		nodes = append(nodes, n.node)
	}
	identity := selection.NewIdentity(service, r)
	built := &plainClass{identity, identity.NewClass(nil, nodes, p.config)}
	p.classes[hash] = built
	return built.class.Choose(dst, q, rnd)
}

// States are all nodes, ordered by id.
func (p *plainFleet) States() []cell.NodeState {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]cell.NodeState, 0, len(p.nodes))
	for _, n := range p.nodes {
		out = append(out, n.state)
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return out
}
