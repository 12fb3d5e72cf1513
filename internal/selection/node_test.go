package selection

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

func newTestNode(id string, slots int) *Node {
	n := NewNode(Compile(&freeslot.Node{ID: id, MaxConcurrency: slots, Services: services("tts")}), 0)
	n.Seen(0)
	return n
}

func checkLoad(t *testing.T, n *Node, used, pending int) {
	t.Helper()
	if u, p := n.Load(); u != used || p != pending {
		t.Errorf("got %d used and %d pending, want %d and %d", u, p, used, pending)
	}
}

func TestNodeSlots(t *testing.T) {
	t.Parallel()
	n := newTestNode("a", 4)
	n.SetUsed(1)
	if !n.TryTake(2) || n.TryTake(2) || !n.TryTake(1) || n.TryTake(1) {
		t.Fatal("slots taken beyond max_concurrency, or refused below it")
	}
	checkLoad(t, n, 1, 3)
	n.Confirm(2, 3)
	checkLoad(t, n, 3, 1)
	n.Release(1)
	checkLoad(t, n, 3, 0)
	n.SetUsed(9)
	if n.TryTake(1) {
		t.Error("took a slot of a node that is over its capacity")
	}
	for _, used := range []int{-1, 0, math.MaxInt} {
		n.SetUsed(used)
		checkLoad(t, n, min(max(used, 0), math.MaxInt32), 0)
	}
}

func TestNodePanicsOnReleaseBeyondTaken(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*Node){
		"release": func(n *Node) { n.Release(2) },
		"confirm": func(n *Node) { n.Confirm(2, 0) },
	} {
		n := newTestNode("a", 4)
		n.TryTake(1)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call(n)
		}()
		checkLoad(t, n, 0, 1)
	}
}

func TestNodeWithProfileKeepsFigures(t *testing.T) {
	t.Parallel()
	n := newTestNode("a", 2)
	n.TryTake(2)
	n.SetDraining(true)
	n.SetProfile(Compile(&freeslot.Node{ID: "a", MaxConcurrency: 3}))
	if !n.Draining() || !n.TryTake(1) || n.TryTake(1) {
		t.Error("figures or capacity are not as expected after the change")
	}
	n.Confirm(2, 2)
	checkLoad(t, n, 2, 1)
	if n.Max() != 3 || n.Profile().Node().MaxConcurrency != 3 {
		t.Error("the profile is the old one")
	}
}

func TestNodeSilence(t *testing.T) {
	t.Parallel()
	n := NewNode(Compile(&freeslot.Node{ID: "a", MaxConcurrency: 1, Services: services("tts")}), 0)
	check := func(now time.Duration, silent bool) {
		t.Helper()
		q := Query{Now: int64(now), SilenceLimit: 8 * time.Second}
		if got := q.check(n) == ReasonSilent; got != silent {
			t.Errorf("at %s: silent is %t, want %t", now, got, silent)
		}
		for _, key := range []string{"", "key"} { // both ways of looking at the figures
			q.AffinityKey, q.IgnoreFull = key, key != ""
			class := NewClass([]*Node{n, NewNode(Compile(&freeslot.Node{ID: "b", MaxConcurrency: 1, Services: services("tts")}), 0)}, nil, "tts", nothing)
			if got := class.Choose(make([]*Node, 0, 1), &q, NewSource(1)); (len(got) == 0) != silent {
				t.Errorf("at %s: %d chosen, want silent %t", now, len(got), silent)
			}
		}
	}
	check(0, true)
	n.Seen(int64(-2 * time.Second))
	check(6*time.Second, false)
	check(6*time.Second+1, true)
	n.Seen(int64(time.Second))
	n.Seen(0)
	if at, ok := n.SeenAt(); !ok || at != int64(time.Second) {
		t.Errorf("an older sign of life replaced a newer one: %d, %t", at, ok)
	}
	check(9*time.Second, false)
	n.MarkSilent()
	check(time.Second, true)
	n.Seen(0)
	check(time.Second, false)
}

// Invariant: however the calls interleave, pending is exactly what is held, never
// more than the capacity, and setting used does not disturb it.
func TestNodeConcurrentTake(t *testing.T) {
	t.Parallel()
	const workers, turns, slots = 8, 2000, 5
	n := newTestNode("a", slots)
	var held [workers]int
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range turns {
				if n.TryTake(1) {
					held[w]++
				}
				if held[w] > 0 && i%3 == 0 {
					held[w]--
					n.Confirm(1, 0)
				}
				n.SetUsed(0)
				n.Seen(int64(i))
				if used, pending := n.Load(); used != 0 || pending > slots {
					t.Errorf("got %d used and %d pending of %d", used, pending, slots)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, h := range held {
		total += h
	}
	checkLoad(t, n, 0, total)
	n.Release(total)
	checkLoad(t, n, 0, 0)
	if at, _ := n.SeenAt(); at != turns-1 {
		t.Errorf("seen at %d, want %d", at, turns-1)
	}
}
