package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// busyFleet is a cell whose nodes send heartbeats, by the real scripts, in the order of their
// numbers. The test does the part of the follower's loop, and heartbeats are its clock.
type busyFleet struct {
	*rig
	ctx   context.Context
	beats []cell.LinkedHeartbeat
	next  int // of beats
	sent  int // heartbeats
	from  int // the revision before the first event that the cache can receive
	taken int // events that were taken out of the queue and not received
}

func newBusyFleet(t *testing.T, nodes int) *busyFleet {
	t.Helper()
	b := &busyFleet{rig: newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, unhurried), ctx: waittest.Context(t)}
	b.timer.Reset(never) // not started: the loop's part is the test's
	t.Cleanup(func() { b.timer.Stop() })
	for i := range nodes {
		b.beats = append(b.beats, cell.LinkedHeartbeat{
			Heartbeat: cell.Heartbeat{Node: fmt.Sprintf("n%05d", i), Epoch: cell.NewEpoch()},
			Link:      cell.Link{Connection: 1, Stream: cell.NodeStream, Session: "s", Token: "t", Replica: "r", Version: "v"},
		})
	}
	b.registerAll(2)
	t.Cleanup(func() {
		if err := b.events.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := b.events.Start(b.ctx); err != nil {
		t.Fatal(err)
	}
	waittest.Receive(t, "the subscription", b.events.Resets())
	b.from = b.truthRevision()
	if !b.resync("test") || b.Size() != nodes {
		t.Fatalf("the first load found %d nodes, expected %d", b.Size(), nodes)
	}
	return b
}

// registerAll gives all nodes a profile with that many slots.
func (b *busyFleet) registerAll(slots int) {
	b.t.Helper()
	const writers = 32 // at once, which share round trips
	var registered sync.WaitGroup
	for w := range writers {
		registered.Go(func() {
			for i := w; i < len(b.beats); i += writers {
				hb := &b.beats[i]
				if _, err := b.cell.RegisterLinked(b.ctx, testNode(hb.Node, slots), hb.Epoch, hb.Link, ""); err != nil {
					b.t.Error(err)
					return
				}
			}
		})
	}
	registered.Wait()
}

// beat sends the next n heartbeats.
func (b *busyFleet) beat(n int) {
	b.t.Helper()
	for n > 0 {
		some := b.beats[b.next:min(b.next+min(n, 32), len(b.beats))]
		for _, result := range b.cell.HeartbeatsLinked(b.ctx, some) {
			if result.Err != nil {
				b.t.Fatal(result.Err)
			}
		}
		b.next = (b.next + len(some)) % len(b.beats)
		b.sent += len(some)
		n -= len(some)
	}
	b.arrive()
}

// arrive waits until all events are queued or dropped.
func (b *busyFleet) arrive() {
	b.t.Helper()
	want := b.truthRevision() - b.from
	waittest.Until(b.t, "the events of all changes", func() bool {
		got := len(b.events.Messages()) + int(b.events.Dropped()) + b.taken
		for _, kind := range events.Kinds() {
			got += b.counter(b.metrics.events.WithLabelValues(kind.String()))
		}
		return got >= want
	})
}

// leave deregisters a node, whose tombstone can be dropped at once.
func (b *busyFleet) leave(node int, dropped bool) {
	b.t.Helper()
	hb := b.beats[node]
	if _, err := b.cell.Deregister(b.ctx, hb.Node, hb.Epoch); err != nil {
		b.t.Fatal(err)
	}
	b.beats = slices.Delete(b.beats, node, node+1)
	if dropped {
		layout := b.cell.Layout()
		b.do("ZREM", layout.Revisions(), "-"+hb.Node)
		b.do("HSET", layout.Version(), "floor", itoa(b.truthRevision()))
	}
	b.arrive()
}

// hold takes the queued events away, as if they were still on their way.
func (b *busyFleet) hold() (held []string) {
	for len(b.events.Messages()) > 0 {
		held = append(held, <-b.events.Messages())
		b.taken++
	}
	return held
}

// receiveAll delivers events that were held.
func (b *busyFleet) receiveAll(held []string) {
	for _, message := range held {
		b.taken--
		b.receive(message)
	}
}

// eachPage has f called with the number of each page that is read, behind its answer.
func (b *busyFleet) eachPage(f func(page int)) {
	page := 0
	b.source.intercept(func(_ context.Context, _ cell.Revision, _ *cell.Changes, err error) error {
		if page++; page > 20 {
			return errors.New("there is no end to it")
		}
		f(page)
		return err
	})
}

// expectSlots fails for nodes with another profile.
func (b *busyFleet) expectSlots(slots int) {
	b.t.Helper()
	wrong := 0
	for _, s := range b.States() {
		if s.Node.MaxConcurrency != slots {
			wrong++
		}
	}
	if wrong > 0 {
		b.t.Errorf("%d nodes have another profile than the one with %d slots", wrong, slots)
	}
}

// One call that takes longer than others must not keep a replica busy for ever: it applies the events
// that have come meanwhile, and does not read the fleet again and again.
func TestSlowCallInALargeFleet(t *testing.T) {
	t.Parallel()
	// 10,000 nodes at 3,333 heartbeats a second: a call of 20 ms is as long as 66 of them, one of
	// 440 ms as long as 22 others, and the interval as long as 3,333.
	const (
		nodes, second = 10_000, 3333
		call          = second / 50
		slow          = 22 * call
		seconds       = 10
	)
	b := newBusyFleet(t, nodes)
	stalled := false
	b.source.during(func() {
		if b.sent >= second && !stalled {
			stalled = true
			b.beat(slow)
			return
		}
		b.beat(call)
	})
	b.source.nodes.Store(0)
	// What is ready has its turn one after the other, as in the loop on average.
	ready := make([]func(), 0, 3)
	for turn, due := 0, second; b.sent < seconds*second; turn++ {
		ready = ready[:0]
		if b.sent >= due {
			ready = append(ready, func() { due = b.sent + second; b.tick() })
		}
		if len(b.events.Messages()) > 0 {
			ready = append(ready, func() { b.receive(<-b.events.Messages()) })
		}
		if len(b.events.Resets()) > 0 {
			ready = append(ready, func() {
				<-b.events.Resets()
				b.taken += len(b.events.Messages())
				b.reset(b.events.Messages())
			})
		}
		if len(ready) == 0 {
			b.beat(min(call, due-b.sent))
			continue
		}
		ready[turn%len(ready)]()
	}
	if !stalled {
		t.Fatal("no call was slow: this test shows nothing")
	}
	if n := b.events.Dropped(); n != 0 {
		t.Errorf("%d events were dropped, expected none", n)
	}
	if n := b.source.nodes.Load(); n > 200*seconds {
		t.Errorf("%d nodes were read in %d seconds, expected at most 200 a second", n, seconds)
	}
	if behind := b.truthRevision() - int(b.revision.Load()); behind > second {
		t.Errorf("the replica is %d revisions behind, expected at most the %d of a second", behind, second)
	}
}

// A delta of a busy fleet is never complete at the revision at which it began. It goes on, and reads
// no nodes one by one: those that change meanwhile are met further on.
func TestDeltaOfABusyFleet(t *testing.T) {
	t.Parallel()
	const nodes, read, escaping = 1300, 3, 900 // read by the first page, and not before the third
	for name, c := range map[string]struct {
		leaves, dropped bool // its tombstone
	}{
		"a node escapes": {false, false},
		"a node leaves":  {true, false},
		"a node leaves and its tombstone is dropped": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBusyFleet(t, nodes)
			b.registerAll(7)
			b.arrive()
			b.hold() // for ever: they are lost
			b.next = escaping
			id := b.beats[read].Node
			b.eachPage(func(page int) {
				if page == 2 && c.leaves {
					b.leave(read, c.dropped)
				}
				b.beat(64)
			})
			if !b.resync("test") {
				t.Fatal("the comparison failed")
			}
			// Only a replacing load, which finds what has no tombstone, asks for nodes that it has not met.
			if n := b.source.reads.Load(); n > 0 && !c.dropped {
				t.Errorf("%d calls for single nodes, expected none", n)
			}
			b.expectSlots(7)
			if _, known := b.Node(id); known == c.leaves {
				t.Errorf("a node is known: %v, and has left: %v", known, c.leaves)
			}
			b.source.intercept(nil)
			b.applyQueued()
			b.agrees()
		})
	}
}

// A fleet that changes faster than it can be read ends a delta. The nodes that have escaped from it
// are read one by one.
func TestFleetChangesFasterThanItIsRead(t *testing.T) {
	t.Parallel()
	const nodes = maxPage + 100
	b := newBusyFleet(t, nodes)
	b.registerAll(7)
	b.arrive()
	b.hold()
	b.eachPage(func(int) { b.beat(nodes) })
	if !b.resync("test") {
		t.Fatal("the comparison failed")
	}
	b.expectSlots(7)
	b.source.intercept(nil)
	b.applyQueued()
	b.agrees()
}

// A comparison that takes longer than the interval is followed by the next. The events that have come
// meanwhile are applied before it.
func TestSlowComparisonsLeaveEventsTheirTurn(t *testing.T) {
	t.Parallel()
	const call = 32
	b := newBusyFleet(t, 100)
	b.source.during(func() { b.beat(call) })
	b.source.nodes.Store(0)
	const comparisons = 20
	for range comparisons {
		b.tick()
		if n := len(b.events.Messages()); n > 2*call {
			t.Fatalf("%d events wait after a comparison of two calls, expected the %d that came meanwhile", n, 2*call)
		}
	}
	if n := b.source.nodes.Load(); n > comparisons {
		t.Errorf("%d nodes were read by %d comparisons, expected the events to bring them", n, comparisons)
	}
	// One that a caller asks for reads only what came after its beginning.
	b.source.nodes.Store(0)
	answer := make(chan bool, 1)
	b.answer(answer)
	if !<-answer {
		t.Fatal("the comparison failed")
	}
	if n := b.source.nodes.Load(); n > call {
		t.Errorf("%d nodes were read for a caller, expected the %d that changed after the comparison began", n, call)
	}
}
