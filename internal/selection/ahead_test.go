package selection

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever lists a source draws from, in whatever order and however many meet in one
// place: two distinct nodes of the list that was asked for.
func TestAheadDrawsFromTheListAskedFor(t *testing.T) {
	t.Parallel()
	nodes := testFleet(12, 1)
	rapid.Check(t, func(t *rapid.T) {
		// Numbers of which some are a table apart, and lists that overlap.
		numbers := rapid.SampledFrom([]uint64{1, 2, aheadLists - 1, aheadLists, aheadLists + 1, 2*aheadLists + 1, 2*aheadLists + 2})
		bounds := make(map[uint64][2]int)
		source := NewSourceAhead(rapid.Uint64().Draw(t, "seed"))
		for range rapid.IntRange(1, 60).Draw(t, "draws") {
			list := numbers.Draw(t, "list")
			if _, ok := bounds[list]; !ok {
				from := rapid.IntRange(0, len(nodes)-2).Draw(t, "from")
				bounds[list] = [2]int{from, rapid.IntRange(from+2, len(nodes)).Draw(t, "to")}
			}
			of := nodes[bounds[list][0]:bounds[list][1]]
			if a, b := source.two(of, list); a == b || !slices.Contains(of, a) || !slices.Contains(of, b) {
				t.Fatalf("list %d: drew %s and %s of %v", list, a.ID(), b.ID(), ids(of))
			}
		}
	})
}

// Every ordered pair is as likely as any other, also if two lists take turns in one place:
// 20 pairs of 5 nodes, 40,000 draws.
func TestAheadIsUniform(t *testing.T) {
	t.Parallel()
	const count, draws = 5, 40_000
	nodes := testFleet(count, 1)
	for name, other := range map[string]uint64{"alone": 1, "in turns": 1 + aheadLists} {
		source, pairs := NewSourceAhead(1), make(map[[2]*Node]int)
		for range draws / 2 {
			for _, list := range []uint64{1, other} {
				a, b := source.two(nodes, list)
				pairs[[2]*Node{a, b}]++
			}
		}
		const want = draws / (count * (count - 1))
		squares := 0.0
		for _, got := range pairs {
			squares += math.Pow(float64(got-want), 2) / want
		}
		// 19 degrees of freedom: above 43.8 once in a thousand seeds, and this one is fixed.
		if len(pairs) != count*(count-1) || squares > 43.8 {
			t.Errorf("%s: %d pairs, chi-squared %.1f", name, len(pairs), squares)
		}
	}
}

// What was drawn from a class is not used for the one that takes its place.
func TestAheadOfAClassBuiltAnew(t *testing.T) {
	t.Parallel()
	nodes, source, room := testFleet(40, 1), NewSourceAhead(1), make([]*Node, 0, 1)
	for from := range 30 {
		fleet := nodes[from : from+10]
		class := ttsClass(fleet)
		class.drawAhead()
		for range 3 {
			if got := class.Choose(room, &Query{}, source); !slices.Contains(fleet, got[0]) {
				t.Fatalf("%s was chosen, which is not in the class", got[0].ID())
			}
		}
	}
}

// Only large fleets are drawn ahead from: the whole list of each cell, and the share.
func TestAheadOfLargeFleets(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(farFleet, 2, 4)
	share := NewShare("r0", replicaNames(2))
	for _, count := range []int{farFleet - 1, farFleet} {
		large := count == farFleet
		spans := share.NewClass(nodes[:count], nil, "tts", nothing).tiers[0].spans
		for _, s := range spans {
			if (s.list > 0) != large || (s.ownList > 0) != large {
				t.Errorf("%d nodes, cell %d: lists %d and %d", count, s.cell, s.list, s.ownList)
			}
		}
		one := make([]*Node, count)
		for i := range one {
			one[i] = nodes[0]
		}
		if got := ttsClass(one).pairs; (got.list > 0) != large || got.ownList > 0 {
			t.Errorf("%d nodes of one cell, no share: lists %d and %d", count, got.list, got.ownList)
		}
	}
}

// A source that does not draw ahead gives the same choices for the same seed, whatever the fleet.
func TestNotAheadSameSeedSameChoice(t *testing.T) {
	t.Parallel()
	nodes, room := testFleet(50, 4), make([]*Node, 0, 1)
	class, again := ttsClass(nodes), ttsClass(nodes)
	again.drawAhead()
	a, b := NewSource(1), NewSource(1)
	for range 100 {
		if x, y := class.Choose(room, &Query{}, a)[0], again.Choose(make([]*Node, 0, 1), &Query{}, b)[0]; x != y {
			t.Fatalf("%s, and %s for the same seed", x.ID(), y.ID())
		}
	}
}
