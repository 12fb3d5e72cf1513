package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// fakeWatch reports what a test wants.
type fakeWatch struct {
	token     chan struct{}
	nodes     []string
	all       bool
	connected bool

	unsupported bool
}

func (w *fakeWatch) Changed() <-chan struct{} { return w.token }
func (w *fakeWatch) Connected() bool          { return w.connected }
func (w *fakeWatch) Supported() bool          { return !w.unsupported }
func (w *fakeWatch) Take() ([]string, bool)   { return w.nodes, w.all }

// A node that was read because its key was written is ahead of the events that are
// still on their way: an older one must not bring back what is gone.
func TestReadAheadOfEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.timer.Reset(never) // not started: the loop's part is ours
	defer r.timer.Stop()
	r.register(testNode("a", 2))
	if !r.resync("test") {
		t.Fatal("no first load")
	}
	register := func(slots int) string {
		n := testNode("a", slots)
		r.register(n)
		body, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("1 1 r %d a %s online %d 0 %s", r.truthRevision(), r.epochs["a"], slots, body)
	}
	late := register(5)
	r.do("DEL", r.cell.Layout().Node("a"))
	r.invalid = []string{"a"}
	r.reread()
	if _, ok := r.Node("a"); ok {
		t.Fatal("the node is still there")
	}
	r.receive(late)
	if _, ok := r.Node("a"); ok {
		t.Error("an event of before brought it back")
	}
	if got := int(r.revision.Load()); got != r.truthRevision() {
		t.Errorf("revision %d, Redis has %d", got, r.truthRevision())
	}
	r.receive(register(6))
	if s, ok := r.State("a"); !ok || s.Node.MaxConcurrency != 6 {
		t.Errorf("the next event: %+v, %v", s, ok)
	}
	if len(r.ahead) != 0 {
		t.Errorf("%d nodes are remembered", len(r.ahead))
	}
}

// A node escapes from a load because its profile changes meanwhile. That change is its first event
// here, and it does not have the time of registration.
func TestChangeOfANodeThatEscaped(t *testing.T) {
	t.Parallel()
	// Pages of 3, 6 and 12 nodes; the last page ends with the last node.
	const fleet, escaping = 3 + 1 + 6 + 12, 5
	r := newRig(t, redistest.Shared(t), Config{RefreshSize: 3, RefreshInterval: never}, withoutEvents(true))
	r.timer.Reset(never) // not started: the loop's part is ours
	defer r.timer.Stop()
	for i := range fleet {
		r.register(testNode(nodeName(i), 2))
	}
	id, event := nodeName(escaping), ""
	r.source.intercept(func(_ context.Context, _ cell.Revision, _ *cell.Changes, err error) error {
		if event == "" {
			n := testNode(id, 7)
			r.register(n)
			body, _ := json.Marshal(n)
			event = fmt.Sprintf("1 1 r %d %s %s online 7 0 %s", r.truthRevision(), id, r.epochs[id], body)
		}
		return err
	})
	if !r.resync("test") {
		t.Fatal("no first load")
	}
	r.source.intercept(nil)
	if _, ok := r.Node(id); ok {
		t.Fatal("it did not escape")
	}
	r.receive(event)
	if s, ok := r.State(id); !ok || s.Node.MaxConcurrency != 7 {
		t.Errorf("after the event: %+v, %v", s, ok)
	}
	if r.gathering {
		r.reread()
	}
	r.agrees()
}

// Invalidated nodes are gathered: a registration of many costs calls of many nodes.
func TestInvalidatedNodesAreGathered(t *testing.T) {
	t.Parallel()
	const fleet, page = 20, 8
	w := &fakeWatch{token: make(chan struct{}, 1), connected: true}
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never, RefreshSize: page}, withoutEvents(true), watched(w)).run()
	for i := range fleet {
		n := testNode(nodeName(i), 2)
		r.register(n)
		w.nodes = append(w.nodes, n.ID)
	}
	w.token <- struct{}{}
	eventually(t, "the fleet", func() bool { return r.Size() == fleet })
	r.agrees()
	if n := r.counter(r.metrics.invalidated); n != fleet {
		t.Errorf("%d nodes counted", n)
	}
	if n := r.source.reads.Load(); n != (fleet+page-1)/page {
		t.Errorf("%d calls", n)
	}
}

// The tracker does not know what it missed: the cache reads everything.
func TestEverythingInvalidated(t *testing.T) {
	t.Parallel()
	w := &fakeWatch{token: make(chan struct{}, 1), connected: true, all: true}
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true), watched(w))
	r.register(testNode("a", 2))
	r.register(testNode("b", 2))
	r.run()
	r.do("HSET", r.cell.Layout().Node("a"), "max_concurrency", "5")
	r.do("DEL", r.cell.Layout().Node("b"))
	w.token <- struct{}{}
	r.converges()
	if got := r.chosen(r.clock.now()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("chosen %v", got)
	}
}

// A tracker without a connection delays the start for a moment and no longer, and the health
// reports it.
func TestUntracked(t *testing.T) {
	t.Parallel()
	w := &fakeWatch{token: make(chan struct{})}
	r := newRig(t, redistest.Shared(t), Config{}, watched(w))
	r.register(testNode("a", 2))
	r.run()
	if h := r.Health(); !h.Synced || h.Stale || !h.Cells[0].Untracked {
		t.Errorf("%+v", h)
	}
}

// The mirror gets every change that the cache applies.
func TestMirror(t *testing.T) {
	t.Parallel()
	m := newMap()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never, Mirror: m})
	r.register(testNode("a", 2))
	r.run()
	r.register(testNode("b", 3))
	r.heartbeat("a", `{"x":1}`)
	r.submit("b")
	r.submit("b")
	r.submit("b")
	r.converges()
	if got := m.text(); got != `a slots=2 used=0 {"x":1}, b slots=3 used=3 ` {
		t.Errorf("mirrored: %s", got)
	}
	r.deregister("b")
	r.register(testNode("a", 9))
	r.converges()
	if got := m.text(); got != `a slots=9 used=0 {"x":1}` {
		t.Errorf("mirrored: %s", got)
	}
	if m.configs.Load() != 1 {
		t.Errorf("%d configurations", m.configs.Load())
	}
}

// Where Redis cannot report changes made without a script, the cache reads the whole cell from time
// to time, and the health reports it.
func TestUnwatchedCellIsReadAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.timer.Reset(never) // not started: the loop's part is ours
	defer r.timer.Stop()
	w := &fakeWatch{unsupported: true}
	r.followers[0].watch = w
	r.register(testNode("a", 2))
	if !r.resync("test") {
		t.Fatal("no first load")
	}
	if h := r.Health().Cells[0]; !h.Untracked || !h.Untrackable {
		t.Errorf("%+v; want h.Untracked, h.Untrackable", h)
	}
	r.do("DEL", r.cell.Layout().Node("a"))
	look := func() bool {
		r.lookUnwatched()
		if !r.resync("test") {
			t.Fatal("no answer")
		}
		_, known := r.Node("a")
		return known
	}
	if !look() {
		t.Error("the whole cell was read at once")
	}
	r.clock.origin = r.clock.origin.Add(-unwatchedEvery)
	if look() {
		t.Error("the node that an operator has deleted is still there")
	}
	r.clock.origin = r.clock.origin.Add(-unwatchedEvery)
	w.unsupported, w.connected = false, true
	r.lookUnwatched()
	if r.stale || r.Health().Cells[0].Untracked {
		t.Error("a cell that is watched is read anew")
	}
}
