package locked

import (
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// Plain is the fleet in one map under one lock; see the package comment. It is safe
// for concurrent use.
type Plain struct {
	cells  int
	mu     sync.RWMutex // guards everything below
	nodes  map[string]*record
	config *selection.Config
	// lists are dropped when candidates change. Each has its class: it is added and
	// built under one lock.
	lists lists
}

// NewPlain makes a Plain without nodes. It does no I/O.
func NewPlain(cfg Config) *Plain {
	cfg = cfg.withDefaults()
	return &Plain{
		cells: cfg.Cells, config: cfg.Selection,
		nodes: make(map[string]*record), lists: newLists(),
	}
}

// Put implements [Nodes].
func (p *Plain) Put(state *cell.NodeState) {
	p.mu.RLock()
	var known *selection.Node
	if r, ok := p.nodes[state.Node.ID]; ok {
		known = r.node
	}
	p.mu.RUnlock()
	ready := prepare(state, known)
	p.mu.Lock()
	defer p.mu.Unlock()
	if put(p.nodes, &ready, p.cells) {
		p.lists.drop()
	}
}

// Heartbeat implements [Nodes].
func (p *Plain) Heartbeat(node string, used int, status freeslot.Status, seenAt int64, resources string) {
	body := resourcesOf(resources)
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.nodes[node]; ok {
		r.heartbeat(used, status, seenAt, body)
	}
}

// Remove implements [Nodes].
func (p *Plain) Remove(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.nodes[node]; ok {
		delete(p.nodes, node)
		p.lists.drop()
	}
}

// SetConfig implements [Nodes].
func (p *Plain) SetConfig(cfg *selection.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config = cfg
	p.lists.drop()
}

// State implements [Nodes].
func (p *Plain) State(id string) (cell.NodeState, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	r, ok := p.nodes[id]
	if !ok {
		return cell.NodeState{}, false
	}
	return r.state, true
}

// States implements [Nodes].
func (p *Plain) States() []cell.NodeState {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]cell.NodeState, 0, len(p.nodes))
	for _, r := range p.nodes {
		out = append(out, r.state)
	}
	return sorted(out)
}

// Choose implements [Nodes].
func (p *Plain) Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node {
	hash := class.Hash(service, r)
	p.mu.RLock()
	if l := p.lists.find(hash, service, r); l != nil {
		dst = l.class.Choose(dst, q, rnd)
		p.mu.RUnlock()
		return dst
	}
	p.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list(hash, service, r).Choose(dst, q, rnd)
}

// list returns the candidates of a class; p.mu is held for writing.
func (p *Plain) list(hash uint64, service string, r *freeslot.Requirement) *selection.Class {
	l := p.lists.findOrAdd(hash, service, r)
	if l.class == nil {
		nodes := make([]*selection.Node, 0, len(p.nodes))
		for _, r := range p.nodes {
			nodes = append(nodes, r.node)
		}
		p.lists.set(l, selection.NewClass(nodes, p.config, service, &l.requirement), 0)
	}
	return l.class
}
