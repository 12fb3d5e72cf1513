package locked

import (
	"cmp"
	"slices"
	"sync"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Snapshot is the fleet at one moment. It never changes, except for the live figures of the nodes,
// which all snapshots share.
type Snapshot struct {
	nodes  map[string]*record // these records never change
	config *selection.Config
	// version counts snapshots. profiles counts the snapshots in which candidates changed.
	version, profiles uint64
}

// Version returns the number of the snapshot, from 0.
func (s *Snapshot) Version() uint64 { return s.version }

// Size returns the number of its nodes.
func (s *Snapshot) Size() int { return len(s.nodes) }

// State returns one of its nodes.
func (s *Snapshot) State(id string) (cell.NodeState, bool) {
	r, ok := s.nodes[id]
	if !ok {
		return cell.NodeState{}, false
	}
	return r.state, true
}

// States returns its nodes, ordered by id.
func (s *Snapshot) States() []cell.NodeState {
	out := make([]cell.NodeState, 0, len(s.nodes))
	for _, r := range s.nodes {
		out = append(out, r.state)
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return out
}

// candidates returns the live figures of its nodes, in no order.
func (s *Snapshot) candidates() []*selection.Node {
	out := make([]*selection.Node, 0, len(s.nodes))
	for _, r := range s.nodes {
		out = append(out, r.node)
	}
	return out
}

// snapshots holds the present snapshot and its lock.
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
