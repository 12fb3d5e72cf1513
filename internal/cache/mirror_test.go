package cache

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// mapMirror is the plainest mirror.
type mapMirror struct {
	mu      sync.Mutex
	nodes   map[string]cell.NodeState // guarded by mu
	configs atomic.Int64
}

func newMap() *mapMirror { return &mapMirror{nodes: make(map[string]cell.NodeState)} }

func (m *mapMirror) Put(s *cell.NodeState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[s.Node.ID] = *s
}

func (m *mapMirror) Heartbeat(id string, used int, status freeslot.Status, _ int64, resources string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.nodes[id]
	if !ok {
		panic("heartbeat of an unknown node")
	}
	s.Used, s.Status, s.Resources = used, status, []byte(resources)
	m.nodes[id] = s
}

func (m *mapMirror) Remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, id)
}

func (m *mapMirror) SetConfig(*selection.Config) { m.configs.Add(1) }

func (m *mapMirror) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		s := m.nodes[id]
		out = append(out, fmt.Sprintf("%s slots=%d used=%d %s", id, s.Node.MaxConcurrency, s.Used, s.Resources))
	}
	return strings.Join(out, ", ")
}
