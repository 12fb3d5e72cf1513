package locked

import (
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// State is the lock-based picture of the fleet; see the package comment. It is safe
// for concurrent use.
type State struct {
	cells      int
	management management
	// publish is held while one snapshot is made from another, so that none is lost.
	// It is taken before the locks of management and snapshots, never after.
	publish   sync.Mutex
	snapshots snapshots
	members   members
}

// management is what is known, changed in place.
type management struct {
	mu     sync.RWMutex // guards nodes, the states of its records, and config
	nodes  map[string]*record
	config *selection.Config
}

// New makes a State without nodes. It does no I/O.
func New(cfg Config) *State {
	cfg = cfg.withDefaults()
	s := &State{cells: cfg.Cells}
	s.management.nodes = make(map[string]*record)
	s.management.config = cfg.Selection
	s.snapshots.current = &Snapshot{config: cfg.Selection}
	s.members.lists = newLists()
	return s
}

// Put implements [Nodes].
func (s *State) Put(state *cell.NodeState) {
	known, _ := s.Node(state.Node.ID)
	p := prepare(state, known)
	s.publishNode(p.state.Node.ID, s.management.put(&p, s.cells))
}

// Heartbeat implements [Nodes].
func (s *State) Heartbeat(node string, used int, status freeslot.Status, seenAt int64, resources string) {
	if s.management.heartbeat(node, used, status, seenAt, resources) {
		s.publishNode(node, false)
	}
}

// Remove implements [Nodes].
func (s *State) Remove(node string) {
	if s.management.remove(node) {
		s.publishNode(node, true)
	}
}

// SetConfig implements [Nodes].
func (s *State) SetConfig(cfg *selection.Config) {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.management.mu.Lock()
	s.management.config = cfg
	s.management.mu.Unlock()
	last := s.snapshots.load()
	s.snapshots.swap(&Snapshot{nodes: last.nodes, config: cfg, version: last.version + 1, profiles: last.profiles + 1})
}

// publishNode makes a snapshot that has the node as it is now known, or has it no
// more. The record is read after publish is held: of two changes of a node the later
// one is in the later snapshot.
func (s *State) publishNode(id string, changed bool) {
	s.publish.Lock()
	defer s.publish.Unlock()
	v := s.management.view(id)
	last := s.snapshots.load()
	next := &Snapshot{nodes: clone(last.nodes), config: last.config, version: last.version + 1, profiles: last.profiles}
	if v != nil {
		next.nodes[id] = v
	} else {
		delete(next.nodes, id)
	}
	if changed {
		next.profiles++
	}
	s.snapshots.swap(next)
}

// Snapshot is the fleet as it is now.
func (s *State) Snapshot() *Snapshot { return s.snapshots.load() }

// State implements [Nodes].
func (s *State) State(id string) (cell.NodeState, bool) { return s.snapshots.load().State(id) }

// States implements [Nodes].
func (s *State) States() []cell.NodeState { return s.snapshots.load().States() }

// Size is the number of nodes known.
func (s *State) Size() int { return s.snapshots.load().Size() }

// Node returns the live figures of a node.
func (s *State) Node(id string) (*selection.Node, bool) {
	v, ok := s.snapshots.load().nodes[id]
	if !ok {
		return nil, false
	}
	return v.node, true
}

// Choose implements [Nodes]. While somebody else rebuilds the list of candidates the
// former one is used; Settle waits.
func (s *State) Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node {
	return s.Class(service, r).Choose(dst, q, rnd)
}

// Class returns the candidates of "service with requirement r" as Choose uses them.
func (s *State) Class(service string, r *freeslot.Requirement) *selection.Class {
	return s.members.of(s.snapshots.load(), service, r, false)
}

// Settle returns the candidates of "service with requirement r" after every change
// that was made before the call.
func (s *State) Settle(service string, r *freeslot.Requirement) *selection.Class {
	return s.members.of(s.snapshots.load(), service, r, true)
}

// Refused takes over the fresh state that came with a refusal.
func (s *State) Refused(r cell.Refusal) {
	if node, ok := s.Node(r.Node); ok {
		refused(node, r)
	}
}

func (m *management) put(p *prepared, cells int) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return put(m.nodes, p, cells)
}

func (m *management) heartbeat(id string, used int, status freeslot.Status, seenAt int64, resources string) (known bool) {
	body := resourcesOf(resources)
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.nodes[id]
	if known {
		r.heartbeat(used, status, seenAt, body)
	}
	return known
}

func (m *management) remove(id string) (known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known = m.nodes[id]
	delete(m.nodes, id)
	return known
}

// view copies what is known of one node; nil is nothing.
func (m *management) view(id string) *view {
	v := new(view)
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.nodes[id]
	if !ok {
		return nil
	}
	v.state, v.node = r.state, r.node
	return v
}
