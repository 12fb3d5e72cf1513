package locked

import (
	"sync"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Snapshot is the fleet at one moment. It never changes, except for the live figures
// of the nodes, which it shares with all other snapshots.
type Snapshot struct {
	nodes  map[string]*view
	config *selection.Config
	// version counts snapshots; profiles those before which candidates changed.
	version, profiles uint64
}

// view is one node of a snapshot. It never changes, but for the figures in node.
type view struct {
	state cell.NodeState
	node  *selection.Node
}

// Version is the number of the snapshot, from 0.
func (s *Snapshot) Version() uint64 { return s.version }

// Size is the number of its nodes.
func (s *Snapshot) Size() int { return len(s.nodes) }

// State returns one node of it.
func (s *Snapshot) State(id string) (cell.NodeState, bool) {
	v, ok := s.nodes[id]
	if !ok {
		return cell.NodeState{}, false
	}
	return v.state, true
}

// States are its nodes, ordered by id.
func (s *Snapshot) States() []cell.NodeState {
	out := make([]cell.NodeState, 0, len(s.nodes))
	for _, v := range s.nodes {
		out = append(out, v.state)
	}
	return sorted(out)
}

// candidates are the live figures of its nodes, in no order.
func (s *Snapshot) candidates() []*selection.Node {
	out := make([]*selection.Node, 0, len(s.nodes))
	for _, v := range s.nodes {
		out = append(out, v.node)
	}
	return out
}

// snapshots is the present snapshot and its lock.
type snapshots struct {
	mu      sync.RWMutex // guards current
	current *Snapshot
}

func (s *snapshots) load() *Snapshot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.current
}

func (s *snapshots) swap(next *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = next
}
