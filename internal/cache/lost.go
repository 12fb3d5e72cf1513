package cache

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// rememberLost is how long a loss is remembered.
	rememberLost = time.Hour
	// maxLost bounds the nodes that are remembered. Beyond it a loss takes the place of the oldest.
	maxLost = 1000
	// maxLosses bounds the losses that are counted of a node.
	maxLosses = 10
)

// LostNode is a node that no agent or operator removed, but that fell silent or that Redis lost.
type LostNode struct {
	ID string
	// At are the times of its losses within the last hour, the last ten at most, oldest first.
	At []time.Time
	// Back is true if the node is in the cache.
	Back bool
}

// losses remembers the nodes that were lost.
type losses struct {
	mu    sync.Mutex
	nodes map[string][]time.Time // guarded by mu
}

func (l *losses) add(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = make(map[string][]time.Time)
	}
	if _, known := l.nodes[id]; !known && len(l.nodes) >= maxLost {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(l.nodes)), func(a, b string) int {
			return cmp.Or(last(l.nodes[a]).Compare(last(l.nodes[b])), cmp.Compare(a, b))
		})
		delete(l.nodes, oldest)
	}
	times := append(l.nodes[id], at)
	l.nodes[id] = times[max(0, len(times)-maxLosses):]
}

func last(times []time.Time) time.Time { return times[len(times)-1] }

// since returns copies of the losses after earliest, and forgets the others.
func (l *losses) since(earliest time.Time) map[string][]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(map[string][]time.Time, len(l.nodes))
	for id, times := range l.nodes {
		times = slices.DeleteFunc(slices.Clone(times), func(at time.Time) bool { return at.Before(earliest) })
		if len(times) == 0 {
			delete(l.nodes, id)
			continue
		}
		found[id] = times
	}
	return found
}

// Lost returns the nodes that were lost within the last hour while this replica ran, ordered by id.
// It knows 1,000 of them at most. A node that drained when it was lost is none of them.
func (c *Cache) Lost() []LostNode {
	found := c.lost.since(time.Now().Add(-rememberLost))
	lost := make([]LostNode, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		_, back := c.nodes.Load(id)
		lost = append(lost, LostNode{ID: id, At: found[id], Back: back})
	}
	return lost
}
