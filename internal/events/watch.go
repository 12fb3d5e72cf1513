package events

import (
	"sync"
	"sync/atomic"
)

// watchLimit bounds the node ids that wait in a Watch. Beyond it the reader reads
// everything, which then costs no more.
const watchLimit = 10_000

// Watch gathers what a [Tracker] hears of the nodes of one cell until its reader
// takes it. All methods are safe for concurrent use; none waits.
type Watch struct {
	changed chan struct{}
	// links are the servers that the cell's keys may be on; empty where none is known.
	links atomic.Pointer[[]*link]
	limit int // of nodes

	mu    sync.Mutex
	nodes map[string]struct{} // guarded by mu; empty while all is set
	all   bool                // guarded by mu
}

func newWatch(limit int) *Watch {
	w := &Watch{limit: limit, changed: make(chan struct{}, 1), nodes: make(map[string]struct{})}
	w.links.Store(new([]*link))
	return w
}

// Changed has a token when there is something to Take. It may have one when
// there is nothing any more.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Take returns what has changed since the last Take: nodes, in no order and
// each once, whose keys were written or deleted, or all. With all set, nodes is
// nil: any key of the cell may have changed. The caller owns the slice.
func (w *Watch) Take() (nodes []string, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all = w.all; all {
		w.all = false
		return nil, true
	}
	if len(w.nodes) == 0 {
		return nil, false
	}
	nodes = make([]string, 0, len(w.nodes))
	for id := range w.nodes {
		nodes = append(nodes, id)
	}
	clear(w.nodes)
	return nodes, false
}

// Connected tells whether every server that may have the cell's keys is tracked
// now. While it is false changes can go unnoticed; after it has become true again
// Take has returned all, or will.
func (w *Watch) Connected() bool {
	links := *w.links.Load()
	for _, l := range links {
		if !l.connected.Load() {
			return false
		}
	}
	return len(links) > 0
}

// Supported is false while a server that may have the cell's keys refuses to track, as
// the embedded one does. The cell is not connected then. The server is asked again from
// time to time.
func (w *Watch) Supported() bool {
	for _, l := range *w.links.Load() {
		if l.unsupported.Load() {
			return false
		}
	}
	return true
}

// touch notes that the node's key was written.
func (w *Watch) touch(node string) {
	w.mu.Lock()
	if !w.all {
		w.nodes[node] = struct{}{}
		if len(w.nodes) > w.limit {
			w.everything()
		}
	}
	w.mu.Unlock()
	w.signal()
}

// touchAll notes that any key may have been written.
func (w *Watch) touchAll() {
	w.mu.Lock()
	w.everything()
	w.mu.Unlock()
	w.signal()
}

// everything is called with mu held. A map that has grown is let go.
func (w *Watch) everything() {
	w.all, w.nodes = true, make(map[string]struct{})
}

// signal comes after the change, so that whoever gets the token finds it.
func (w *Watch) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
