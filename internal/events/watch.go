package events

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// watchLimit bounds the node ids in a Watch. Beyond it the reader reads all nodes, which costs no
// more then.
const watchLimit = 10_000

// Watch gathers the notices of a [Tracker] for the nodes of one cell until its reader takes them.
// All methods are safe for concurrent use. None of them waits.
type Watch struct {
	changed chan struct{}
	// connections holds the servers that may have the cell's keys; empty while none is known.
	connections atomic.Pointer[[]*connection]
	limit       int // the most nodes

	mu    sync.Mutex
	nodes map[string]struct{} // guarded by mu; empty while all is set
	all   bool                // guarded by mu
}

func newWatch(limit int) *Watch {
	w := &Watch{limit: limit, changed: make(chan struct{}, 1), nodes: make(map[string]struct{})}
	w.connections.Store(new([]*connection))
	return w
}

// Changed returns a channel that has a token if there is something to Take. The token can stay
// after Take has taken it.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Take returns the changes since the last Take: the nodes whose keys were written or deleted, in no
// order and each once, or all. With all, nodes is nil: any key of the cell may have changed. The
// caller owns the slice.
func (w *Watch) Take() (nodes []string, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all = w.all; all {
		w.all = false
		return nil, true
	}
	nodes = slices.Collect(maps.Keys(w.nodes))
	clear(w.nodes)
	return nodes, false
}

// Connected reports whether every server that may have the cell's keys is tracked now. While it
// returns false, changes can be missed. After it returns true again, Take has returned all, or
// will.
func (w *Watch) Connected() bool {
	connections := *w.connections.Load()
	return len(connections) > 0 &&
		!slices.ContainsFunc(connections, func(c *connection) bool { return !c.connected.Load() })
}

// Supported returns false while a server that may have the cell's keys cannot track, such as the
// embedded one. Connected then returns false, too. The tracker asks the server again from time to
// time.
func (w *Watch) Supported() bool {
	return !slices.ContainsFunc(*w.connections.Load(), func(c *connection) bool { return c.unsupported.Load() })
}

// touch records that the node's key was written.
func (w *Watch) touch(node string) {
	w.mu.Lock()
	if !w.all {
		w.nodes[node] = struct{}{}
		if len(w.nodes) > w.limit {
			w.everything()
		}
	}
	w.mu.Unlock()
	signal(w.changed) // after the change, so that the reader of the token finds it
}

// touchAll records that any key may have been written.
func (w *Watch) touchAll() {
	w.mu.Lock()
	w.everything()
	w.mu.Unlock()
	signal(w.changed)
}

// everything sets all. It is called with mu held. It drops the map, which may have grown large.
func (w *Watch) everything() {
	w.all, w.nodes = true, make(map[string]struct{})
}
