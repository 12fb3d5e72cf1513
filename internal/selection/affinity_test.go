package selection

import (
	"fmt"
	"math"
	"testing"
)

func chooseFor(class *Class, key string, rnd *Source) *Node {
	got := class.Choose(make([]*Node, 0, 1), &Query{AffinityKey: key}, rnd)
	if len(got) == 0 {
		return nil
	}
	return got[0]
}

// keyNodes returns the node of each of count keys on an idle fleet.
func keyNodes(nodes []*Node, count int) map[string]*Node {
	class, of := ttsClass(nodes), make(map[string]*Node, count)
	for i := range count {
		key := fmt.Sprintf("session-%d", i)
		of[key] = chooseFor(class, key, NewSource(uint64(i)))
	}
	return of
}

// The same key leads to the same node, for any source and any order of the list.
func TestAffinitySameNode(t *testing.T) {
	t.Parallel()
	nodes := testFleet(300, 4)
	of := keyNodes(nodes, 2000)
	shuffled := append(append([]*Node(nil), nodes[150:]...), nodes[:150]...)
	class := ttsClass(shuffled)
	for key, want := range of {
		for seed := range uint64(3) {
			if got := chooseFor(class, key, NewSource(seed+99)); got != want {
				t.Fatalf("%s leads to %s and to %s", key, want.ID(), got.ID())
			}
		}
	}
}

// A key stays on its node while that has room, and leaves it when that has none.
func TestAffinityStaysWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	nodes := testFleet(200, 10)
	for _, n := range nodes {
		n.SetUsed(5)
	}
	class, rnd := ttsClass(nodes), NewSource(1)
	home := chooseFor(class, "session", rnd)
	// The average is 0.5 of all nodes alike, so the estimate is exact: 6 of 10 is
	// below 1.25 * 0.5, 7 is not.
	for used, stays := range map[int]bool{0: true, 4: true, 6: true, 7: false, 10: false} {
		home.SetUsed(used)
		same := 0
		for range 50 {
			if chooseFor(class, "session", rnd) == home {
				same++
			}
		}
		if want := map[bool]int{true: 50, false: 0}[stays]; same != want {
			t.Errorf("with %d of 10 taken the key is %d times of 50 on its node, want %d", used, same, want)
		}
	}
	home.SetUsed(7)
	second := chooseFor(class, "session", rnd)
	for range 50 {
		if got := chooseFor(class, "session", rnd); got != second {
			t.Fatalf("the key's second node is %s and %s", second.ID(), got.ID())
		}
	}
}

// When a node leaves, only its keys move; when it comes back they do again. Few move
// when a node comes that was not there.
func TestAffinityFewKeysMove(t *testing.T) {
	t.Parallel()
	const count, keys = 200, 10000
	nodes := testFleet(count, 4)
	before := keyNodes(nodes, keys)
	gone := nodes[count/2]
	after := keyNodes(append(append([]*Node(nil), nodes[:count/2]...), nodes[count/2+1:]...), keys)
	moved := 0
	for key, n := range before {
		if after[key] == n {
			continue
		}
		if moved++; n != gone {
			t.Fatalf("%s moved from %s, which did not leave", key, n.ID())
		}
	}
	if moved == 0 || moved > 2*keys/count {
		t.Errorf("%d of %d keys moved, want about %d", moved, keys, keys/count)
	}
}

// Idle nodes get keys in proportion to their capacity, none many more than its share.
func TestAffinityGoesByCapacity(t *testing.T) {
	t.Parallel()
	nodes := testFleet(100, 4)
	for i := range 50 {
		nodes[i] = newTestNode(nodes[i].ID(), 12)
	}
	large, most := 0, map[*Node]int{}
	const keys = 40000
	for _, n := range keyNodes(nodes, keys) {
		most[n]++
		if n.Max() == 12 {
			large++
		}
	}
	if share := float64(large) / keys; share < 0.72 || share > 0.78 {
		t.Errorf("three quarters of the capacity get %.3f of the keys", share)
	}
	for n, got := range most {
		if want := float64(keys) * float64(n.Max()) / 800; float64(got) > 1.3*want {
			t.Errorf("%s of %d slots has %d keys, want %.0f at most a little exceeded", n.ID(), n.Max(), got, want)
		}
	}
}

// With keys as uneven as they come (Zipf) no node is above the bound by more than the
// estimate's error, and nothing is refused while there is room.
func TestAffinityBound(t *testing.T) {
	t.Parallel()
	const count, slots = 300, 20
	for _, factor := range []float64{1.1, 1.25, 2} {
		nodes := testFleet(count, slots)
		class, rnd := NewClass(nodes, &Config{AffinityLoadFactor: factor}, "tts", nothing), NewSource(7)
		for placed := 1; placed <= count*slots*6/10; placed++ {
			// Rank k is drawn with probability in proportion to 1/k, of 1000 keys.
			key := fmt.Sprint(int(math.Pow(1000, float64(rnd.Uint64()>>11)/(1<<53))))
			n := chooseFor(class, key, rnd)
			if n == nil || !n.TryTake(1) {
				t.Fatalf("factor %v: job %d is not placed", factor, placed)
			}
		}
		average := 0.6 * slots
		// Three standard errors of the estimate: loads lie between 0 and the bound.
		limit := factor*average*(1+3*0.4/math.Sqrt(averageSamples)) + 1
		if got := mostPending(nodes); float64(got) > limit {
			t.Errorf("factor %v: %d jobs on the fullest node, average %.0f, want at most %.1f", factor, got, average, limit)
		}
	}
}

// A fleet that is nearly full is filled to the last slot by keys alone.
func TestAffinityFillsTheFleet(t *testing.T) {
	t.Parallel()
	nodes := testFleet(50, 4)
	class, rnd := ttsClass(nodes), NewSource(3)
	for i := range 200 {
		if n := chooseFor(class, fmt.Sprint(i%7), rnd); n == nil || !n.TryTake(1) {
			t.Fatalf("job %d of 200 is not placed", i)
		}
	}
	if n := chooseFor(class, "x", rnd); n != nil {
		t.Errorf("%s is chosen although it is full", n.ID())
	}
	if n := class.Choose(make([]*Node, 0, 1), &Query{AffinityKey: "x", IgnoreFull: true}, rnd); len(n) != 1 {
		t.Error("no last resort")
	}
}

func TestAffinityDoesNotAllocate(t *testing.T) {
	class, rnd, dst := ttsClass(testFleet(200, 4)), NewSource(1), make([]*Node, 0, 3)
	q := &Query{AffinityKey: "session", Want: 3}
	class.Choose(dst, q, rnd)
	if n := testing.AllocsPerRun(100, func() { class.Choose(dst, q, rnd) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}
