package cache

import (
	"context"
	"errors"
	"testing"

	"github.com/freeslot/freeslot/internal/cell"
)

// newPatient is a small fleet whose events the test delivers.
func newPatient(t *testing.T) *busyFleet {
	t.Helper()
	b := newBusyFleet(t, 10)
	b.source.nodes.Store(0)
	return b
}

// expectBehind compares the revision with Redis'.
func (b *busyFleet) expectBehind(when string, want int) {
	b.t.Helper()
	if behind := b.truthRevision() - int(b.revision.Load()); behind != want {
		b.t.Errorf("%s: the cache is %d revisions behind, expected %d", when, behind, want)
	}
}

// late sends heartbeats whose events stay on their way.
func (b *busyFleet) late(n int) []string {
	b.t.Helper()
	b.beat(n)
	return b.hold()
}

// profile gives a node another profile, whose event it returns.
func (b *busyFleet) profile(node, slots int) []string {
	b.t.Helper()
	hb := &b.beats[node]
	if _, err := b.cell.RegisterLinked(b.ctx, testNode(hb.Node, slots), hb.Epoch, hb.Link, ""); err != nil {
		b.t.Fatal(err)
	}
	b.arrive()
	return b.hold()
}

// The comparison of the interval reads nothing while the events are on their way.
func TestComparisonsAwaitEvents(t *testing.T) {
	t.Parallel()
	b := newPatient(t)
	for range 5 {
		held := b.late(8)
		b.tick()
		b.expectBehind("events are on their way", 8)
		b.receiveAll(held)
	}
	b.expectBehind("events have come", 0)
	if n := b.source.nodes.Load(); n > 5 {
		t.Errorf("%d nodes were read, expected at most one by each of 5 comparisons", n)
	}
	b.agrees()
}

// What does not await events.
func TestComparisonsAtOnce(t *testing.T) {
	t.Parallel()
	for name, compare := range map[string]func(b *busyFleet){
		"a gap": func(b *busyFleet) { b.receiveAll(b.late(2)[1:]) },
		"a gap soon after another": func(b *busyFleet) {
			b.calmAt = b.clock.now() + int64(never)
			b.receiveAll(b.late(2)[1:])
			b.expectBehind("calm", 8+2)
			b.tick()
		},
		"an error": func(b *busyFleet) {
			b.source.intercept(func(context.Context, cell.Revision, *cell.Changes, error) error { return errors.New("no answer") })
			b.tick()
			b.source.intercept(nil)
			b.tick()
		},
		"a caller": func(b *busyFleet) {
			answer := make(chan bool, 1)
			b.answer(answer)
			if !<-answer {
				b.t.Error("the comparison failed")
			}
		},
		"a call that failed": func(b *busyFleet) { b.resync("call failed") },
		"a new subscription": func(b *busyFleet) { b.reset(b.events.Messages()) },
		"another history": func(b *busyFleet) {
			other := "another server"
			b.source.history.Store(&other)
			b.tick()
		},
		"another generation": func(b *busyFleet) {
			b.do("HSET", b.cell.Layout().Version(), "generation", "another")
			b.tick()
		},
		"no subscription": func(b *busyFleet) {
			if err := b.events.Stop(b.ctx); err != nil {
				b.t.Error(err)
			}
			b.tick()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newPatient(t)
			b.late(8) // a tick alone would await them
			compare(b)
			b.expectBehind("compared", 0)
			b.hold()
			b.agrees()
		})
	}
}

// The last event is lost: no later one shows the gap.
func TestLostEventIsRepairedWithinTwoIntervals(t *testing.T) {
	t.Parallel()
	b := newPatient(t)
	b.late(8)
	b.profile(3, 7)
	for range 2 {
		b.tick()
	}
	b.agrees()
	// The next ones are patient again.
	held := b.late(8)
	b.tick()
	b.expectBehind("after the repair", 8)
	b.receiveAll(held)
	b.agrees()
}

// The event of a profile is lost, and the node sends heartbeats, whose events do not have the profile.
func TestMissedProfileIsRead(t *testing.T) {
	t.Parallel()
	for name, deliver := range map[string]func(b *busyFleet, beat []string){
		"the heartbeat shows the gap": func(b *busyFleet, beat []string) { b.receiveAll(beat) },
		"the heartbeat is lost, too":  func(b *busyFleet, _ []string) { b.tick() },
		"the heartbeat comes in a calm": func(b *busyFleet, beat []string) {
			b.calmAt = b.clock.now() + int64(never)
			b.receiveAll(beat)
			b.tick()
		},
		"it sends more of them meanwhile": func(b *busyFleet, beat []string) {
			b.eachPage(func(int) { b.next = 0; b.beat(1) })
			b.receiveAll(beat)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newPatient(t)
			b.profile(0, 7)
			b.tick() // awaits the event of the profile
			beat := b.late(1)
			deliver(b, beat)
			if s, _ := b.State(b.beats[0].Node); s.Node.MaxConcurrency != 7 {
				t.Errorf("the node has %d slots, expected 7", s.Node.MaxConcurrency)
			}
			b.source.intercept(nil)
			b.applyQueued()
			b.agrees()
		})
	}
}

// Nodes leave, and their tombstones are dropped before the cache has applied their events.
func TestDroppedTombstonesAreFound(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{true, false} {
		t.Run(map[bool]string{true: "the events are lost", false: "the events come"}[lost], func(t *testing.T) {
			t.Parallel()
			b := newPatient(t)
			b.tick()
			for range 3 {
				b.leave(0, true)
			}
			held := b.hold()
			b.source.nodes.Store(0)
			b.tick()
			if !lost {
				b.receiveAll(held)
				b.tick()
				if n := b.source.nodes.Load(); n > 2 {
					t.Errorf("%d nodes were read, expected at most one by each of 2 comparisons", n)
				}
			}
			b.tick()
			b.agrees()
			if b.Size() != 7 {
				t.Errorf("%d nodes are known, expected 7", b.Size())
			}
		})
	}
}

// After a failover that lost writes, others get the revisions that the cache has seen or awaits.
func TestReusedRevisions(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int{"fewer": 2, "as many": 4, "more": 9} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newPatient(t)
			before, after := "run 1", "run 2"
			b.source.history.Store(&before)
			b.resync("test")
			from := b.truthRevision()
			held := b.late(4) // of nodes 0 to 3, all lost; two of them are applied
			b.receiveAll(held[:2])
			b.tick() // awaits the other two
			layout := b.cell.Layout()
			b.do("HSET", layout.Version(), "revision", itoa(from))
			for i := range 4 {
				b.do("ZADD", layout.Revisions(), itoa(i+1), b.beats[i].Node)
			}
			b.source.history.Store(&after)
			b.from -= 4
			b.next = 5
			b.beat(again)
			b.tick()
			b.hold()
			b.expectBehind("compared", 0)
			b.agrees()
			held = b.late(1)
			b.receiveAll(held)
			b.expectBehind("the next event", 0)
			b.agrees()
		})
	}
}

// A node that was read ahead of its events and has none any more is not remembered for ever, although
// nothing is read.
func TestReadAheadIsForgotten(t *testing.T) {
	t.Parallel()
	b := newPatient(t)
	for range 3 {
		b.next = 0
		held := b.late(5) // of others
		b.invalid = []string{b.beats[9].Node}
		b.reread()
		if len(b.ahead) != 1 {
			t.Fatalf("%d nodes are read ahead, expected 1", len(b.ahead))
		}
		b.tick()
		if len(b.ahead) != 1 {
			t.Fatalf("%d nodes are noted while their events are on their way, expected 1", len(b.ahead))
		}
		b.receiveAll(held)
		b.source.nodes.Store(0)
		b.tick()
		if n := b.source.nodes.Load(); n > 1 || len(b.ahead) != 0 {
			t.Errorf("%d nodes are noted after %d were read, expected none", len(b.ahead), n)
		}
	}
	b.agrees()
}
