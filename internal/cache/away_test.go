package cache

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestLostNode: a profile that vanished without a script is awaited, unlike one of a node that was
// drained, or that an operator broke.
func TestLostNode(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	r := newRig(t, redis, Config{RefreshInterval: never}, withoutEvents(true))
	redis.Age(t, r.cell.Layout().Version())
	r.timer.Reset(never) // not started: the loop's part is ours
	defer r.timer.Stop()
	for _, id := range []string{"lost", "drained", "broken"} {
		n := testNode(id, 2)
		n.Services = []freeslot.Service{{Name: id}}
		r.register(n)
	}
	if err := r.cell.Drain(t.Context(), "drained"); err != nil {
		t.Fatal(err)
	}
	if !r.resync("test") {
		t.Fatal("no first load")
	}
	l := r.cell.Layout()
	r.do("DEL", l.Node("lost"), l.Node("drained"))
	r.do("HSET", l.Node("broken"), "max_concurrency", "many")
	r.invalid = []string{"lost", "drained", "broken"}
	r.reread()
	for service, want := range map[string]bool{"lost": true, "drained": false, "broken": false, "other": false} {
		if got := r.MayReturn(&freeslot.Job{Service: service}); got != want || r.Size() != 0 {
			t.Errorf("%s: awaited is %v; %d nodes", service, got, r.Size())
		}
	}
	for slots, want := range map[int]bool{2: true, 3: false} {
		if got := r.MayReturn(&freeslot.Job{Service: "lost", Slots: slots}); got != want {
			t.Errorf("%d slots: awaited is %v", slots, got)
		}
	}
	back := testNode("lost", 2) // with another service
	r.register(back)
	if !r.resync("test") || r.Size() != 1 || r.MayReturn(&freeslot.Job{Service: "lost"}) {
		t.Error("the node is back, and still awaited")
	}
}

// lookMirror looks at what readers see while a node is put.
type lookMirror struct {
	*mapMirror
	look func()
}

func (m *lookMirror) Put(s *cell.NodeState) { m.look(); m.mapMirror.Put(s) }

// TestReturningNode: a node that comes back is awaited until every list has it, those of the mirror
// too.
func TestReturningNode(t *testing.T) {
	t.Parallel()
	m := &lookMirror{newMap(), func() {}}
	c := New(Config{Mirror: m}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
	defer c.cancel()
	f, job := c.followers[0], &freeslot.Job{Service: "echo"}
	state := &cell.NodeState{Node: testNode("n", 1), Epoch: "e", Status: freeslot.StatusOnline}
	f.put(state)
	f.remove("n", true)
	c.Settle(job.Service, &job.Requirement)
	m.look = func() {
		if !c.MayReturn(job) || c.Settle(job.Service, &job.Requirement).Fits() != 1 {
			t.Error("the node is not awaited, or no list has it")
		}
	}
	f.put(state)
	if c.MayReturn(job) {
		t.Error("the node is back, and still awaited")
	}
}

// TestOfflineWithoutReason: an old replica does not say that it reaped a node. Its silence does,
// unless the event says that the node was taken out on purpose.
func TestOfflineWithoutReason(t *testing.T) {
	t.Parallel()
	c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil) // its limit is an hour
	defer c.cancel()
	f, hour := c.followers[0], time.Hour.Milliseconds()
	for _, tc := range []struct {
		silent int64
		body   string
		want   bool
	}{
		{hour + 1, "", true},
		{hour, "", false},
		{hour + 1, events.Left, false},
		{0, events.Reaped, true},
	} {
		f.put(&cell.NodeState{Node: testNode("n", 1), Epoch: "e", Status: freeslot.StatusOnline, LastHeartbeatMS: 1})
		f.apply(&events.Event{Kind: events.Offline, Node: "n", Epoch: "e", AtMS: 1 + tc.silent, Body: tc.body})
		if got := c.MayReturn(&freeslot.Job{Service: "echo"}); got != tc.want || c.Size() != 0 {
			t.Errorf("silent for %d ms, %q: awaited is %v", tc.silent, tc.body, got)
		}
	}
}

// TestManyNodesAway: what is remembered is bounded. Past that any job may find its node again.
func TestManyNodesAway(t *testing.T) {
	t.Parallel()
	var a awayNodes
	const limit = 10 * time.Nanosecond
	gone := func(from, to int, now int64) {
		for i := from; i < to; i++ {
			a.add(selection.NewNode(selection.Compile(&freeslot.Node{ID: fmt.Sprint(i), MaxConcurrency: 1}), 0), now, limit)
		}
	}
	check := func(now int64, want int, wantMany bool) {
		t.Helper()
		if nodes, many := a.list(now); len(nodes) != want || many != wantMany {
			t.Errorf("at %d: %d nodes, many is %v", now, len(nodes), many)
		}
	}
	check(0, 0, false)
	gone(0, maxAway, 0)
	check(9, maxAway, false)
	gone(maxAway, maxAway+1, 5)
	check(9, maxAway, true)
	check(10, 0, true)
	gone(0, 2, 12)
	a.back("1")
	check(15, 1, false)
	gone(0, maxAway, 22) // the former ones make room
	check(23, maxAway, false)
}
