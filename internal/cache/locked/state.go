package locked

import (
	"maps"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Config configures a State. The zero value is usable.
type Config struct {
	// Cells is the number of cells of the system; 0 means 1.
	Cells int
	// Selection says how nodes are chosen until SetConfig replaces it; nil means the zero
	// selection.Config.
	Selection *selection.Config
}

// State is the lock-based copy of the fleet; see the package comment. It is safe for concurrent
// use, but the changes of one node must come one after the other.
type State struct {
	cells int

	management sync.RWMutex // guards nodes, the states of its records, and config
	nodes      map[string]*record
	config     *selection.Config

	// publish is held while one snapshot is made from another, so that none is lost. It is taken
	// before management and the lock of snapshots, never after.
	publish   sync.Mutex
	snapshots snapshots
	members   *members
}

// New makes a State without nodes. It does no I/O.
func New(cfg Config) *State {
	if cfg.Selection == nil {
		cfg.Selection = new(selection.Config)
	}
	return &State{
		cells: max(cfg.Cells, 1), nodes: make(map[string]*record), config: cfg.Selection,
		snapshots: snapshots{current: &Snapshot{config: cfg.Selection}}, members: newMembers(),
	}
}

// Put registers a node or replaces its state. The state must be valid, neither gone nor broken, and
// what it refers to must not change any more. Put is not a sign of life: a new node does not
// qualify before its first Heartbeat.
func (s *State) Put(state *cell.NodeState) {
	known, _ := s.Node(state.Node.ID)
	profile := profileChange(state, known)
	s.put(state, profile)
	s.publishNode(state.Node.ID, profile != nil)
}

func (s *State) put(state *cell.NodeState, profile *selection.Profile) {
	id := state.Node.ID
	s.management.Lock()
	defer s.management.Unlock()
	r, ok := s.nodes[id]
	if !ok {
		if profile == nil { // removed since it was compared
			profile = selection.Compile(&state.Node)
		}
		r = &record{node: selection.NewNode(profile, cell.NodeCell(id, s.cells))}
		s.nodes[id] = r
	} else if profile != nil {
		r.node.SetProfile(profile)
	}
	r.state = *state
	r.setFigures(state.Used, state.Status, string(state.Resources))
}

// Heartbeat records a sign of life at seenAt, in nanoseconds by the clock of [selection.Query.Now].
// With an earlier seenAt it records only new figures. resources is JSON, empty for none. A node
// without a Put is ignored.
func (s *State) Heartbeat(node string, used int, status freeslot.Status, seenAt int64, resources string) {
	s.management.Lock()
	r, known := s.nodes[node]
	if known {
		r.setFigures(used, status, resources)
		r.node.Seen(seenAt)
	}
	s.management.Unlock()
	if known {
		s.publishNode(node, false)
	}
}

// Remove removes a node.
func (s *State) Remove(node string) {
	s.management.Lock()
	_, known := s.nodes[node]
	delete(s.nodes, node)
	s.management.Unlock()
	if known {
		s.publishNode(node, true)
	}
}

// SetConfig replaces how nodes are chosen. cfg must be valid and must not change any more.
func (s *State) SetConfig(cfg *selection.Config) {
	s.publish.Lock()
	defer s.publish.Unlock()
	s.management.Lock()
	s.config = cfg
	s.management.Unlock()
	last := s.snapshots.load()
	s.snapshots.swap(&Snapshot{nodes: last.nodes, config: cfg, version: last.version + 1, profiles: last.profiles + 1})
}

// publishNode makes a snapshot with the node's present record, or without the node if it has none.
// It reads the record after it has taken publish, so the later of two changes of a node is in the
// later snapshot. changed says whether candidates may have changed.
func (s *State) publishNode(id string, changed bool) {
	s.publish.Lock()
	defer s.publish.Unlock()
	last := s.snapshots.load()
	next := &Snapshot{
		nodes: maps.Clone(last.nodes), config: last.config, version: last.version + 1, profiles: last.profiles,
	}
	if next.nodes == nil {
		next.nodes = make(map[string]*record)
	}
	s.management.RLock()
	if r, ok := s.nodes[id]; ok {
		published := *r
		next.nodes[id] = &published
	} else {
		delete(next.nodes, id)
	}
	s.management.RUnlock()
	if changed {
		next.profiles++
	}
	s.snapshots.swap(next)
}

// Snapshot returns the fleet as it is now.
func (s *State) Snapshot() *Snapshot { return s.snapshots.load() }

// State returns the last known state of a node. Its Revision and LastHeartbeatMS come from the last
// Put: a Heartbeat does not have them.
func (s *State) State(id string) (cell.NodeState, bool) { return s.Snapshot().State(id) }

// States returns all nodes, ordered by id.
func (s *State) States() []cell.NodeState { return s.Snapshot().States() }

// Size returns the number of known nodes.
func (s *State) Size() int { return s.Snapshot().Size() }

// Node returns the live figures of a node.
func (s *State) Node(id string) (*selection.Node, bool) {
	r, ok := s.Snapshot().nodes[id]
	if !ok {
		return nil, false
	}
	return r.node, true
}

// Class returns the candidates of "service with requirement r". While another goroutine builds them
// again, it returns the former ones; Settle waits.
func (s *State) Class(service string, r *freeslot.Requirement) *selection.Class {
	return s.members.of(s.Snapshot(), service, r, false)
}

// Settle returns the candidates of "service with requirement r" after every change that was made
// before the call.
func (s *State) Settle(service string, r *freeslot.Requirement) *selection.Class {
	return s.members.of(s.Snapshot(), service, r, true)
}

// Refused applies the fresh state that came with a refusal.
func (s *State) Refused(r cell.Refusal) {
	node, ok := s.Node(r.Node)
	if !ok {
		return
	}
	switch r.Reason {
	case cell.RefusedFull:
		node.SetUsed(r.Used)
	case cell.RefusedDraining:
		node.SetDraining(true)
	case cell.RefusedSilent, cell.RefusedGone:
		node.MarkSilent()
	}
}
