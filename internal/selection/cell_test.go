package selection

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/freeslot/freeslot"
)

// cellFleet returns count nodes in turn of each cell.
func cellFleet(count, cells, slots int) []*Node {
	nodes := make([]*Node, count)
	for i := range nodes {
		nodes[i] = NewNode(Compile(&freeslot.Node{ID: fmt.Sprintf("n%d", i), MaxConcurrency: slots, Services: services("tts")}), i%cells)
		nodes[i].Seen(0)
	}
	return nodes
}

func TestCellMask(t *testing.T) {
	t.Parallel()
	for _, cell := range []int{0, 1, 31, 63} {
		if m := CellMask(0).With(cell); !m.Has(cell) || m.Has((cell+1)%64) || Only(cell)|m != math.MaxUint64 || Only(cell).Has(cell) {
			t.Errorf("cell %d: %b, only %b", cell, m, Only(cell))
		}
	}
}

// The cell is drawn by free slots: chi-squared over four cells with 0, 1, 2 and 3 of
// four slots free on each node, drawn 20,000 times.
func TestCellIsWeightedByFreeSlots(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(400, 4, 4)
	for _, n := range nodes {
		n.SetUsed(4 - n.Cell())
	}
	class, rnd, counts := ttsClass(nodes), NewSource(1), [4]float64{}
	const draws = 20000
	for range draws {
		counts[class.Choose(make([]*Node, 0, 1), &Query{}, rnd)[0].Cell()]++
	}
	if counts[0] != 0 {
		t.Errorf("a full cell is chosen %v times", counts[0])
	}
	// With 3/8 free on average 8 draws miss in one of 43 choices, which then goes by
	// capacity: a fourth of those finds the full cell and draws again.
	for cell := 1; cell < 4; cell++ {
		if want := draws * float64(cell) / 6; math.Abs(counts[cell]-want) > 0.06*want {
			t.Errorf("cell %d: chosen %v times, want about %.0f", cell, counts[cell], want)
		}
	}
}

func TestCellIsWeightedByNodes(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(90, 1, 4)
	for i := range 30 {
		nodes = append(nodes, NewNode(Compile(&freeslot.Node{ID: fmt.Sprintf("m%d", i), MaxConcurrency: 12, Services: services("tts")}), 9))
		nodes[len(nodes)-1].Seen(0)
	}
	class, rnd, ninth := ttsClass(nodes), NewSource(1), 0
	for range 10000 {
		if class.Choose(make([]*Node, 0, 1), &Query{}, rnd)[0].Cell() == 9 {
			ninth++
		}
	}
	if ninth < 4800 || ninth > 5200 {
		t.Errorf("half of the capacity gets %d of 10000 choices", ninth)
	}
}

// One free node in one of many full cells is found, and its cell is not left for more.
func TestOtherCellsWhenOneIsFull(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(1600, 16, 1)
	for _, n := range nodes {
		n.SetUsed(1)
	}
	nodes[777].SetUsed(0)
	class := ttsClass(nodes)
	for seed := range uint64(50) {
		got := class.Choose(make([]*Node, 0, 3), &Query{Want: 3}, NewSource(seed))
		if len(got) != 1 || got[0] != nodes[777] {
			t.Fatalf("seed %d: got %q, want n777", seed, ids(got))
		}
	}
}

func TestCandidatesAreOfOneCell(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(40, 8, 4)
	class, rnd, seen := ttsClass(nodes), NewSource(1), CellMask(0)
	for i := range 500 {
		q := &Query{Want: 8, AffinityKey: []string{"", fmt.Sprint(i)}[i%2]}
		got := class.Choose(make([]*Node, 0, 8), q, rnd)
		if len(got) != 5 || slices.ContainsFunc(got, func(n *Node) bool { return n.Cell() != got[0].Cell() }) {
			t.Fatalf("got %q, want the five of one cell", ids(got))
		}
		seen = seen.With(got[0].Cell())
	}
	if seen != 0b11111111 {
		t.Errorf("only cells %b are chosen", seen)
	}
}

// The first tier has one cell, and one free node, where more are wanted.
func TestCandidatesAreOfOneCellOverTiers(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(20, 2, 4)
	cfg := &Config{Enabled: true, Pools: Pools{{ID: "p", Members: []string{"n0", "n2"}}}}
	nodes[2].SetUsed(4)
	class, rnd := NewClass(nodes, cfg, "tts", &freeslot.Requirement{PreferredPool: "p"}), NewSource(1)
	for range 100 {
		got := class.Choose(make([]*Node, 0, 8), &Query{Want: 6}, rnd)
		if len(got) != 6 || slices.ContainsFunc(got, func(n *Node) bool { return n.Cell() != 0 }) {
			t.Fatalf("got %q, want six of cell 0", ids(got))
		}
	}
}

func TestSkippedCells(t *testing.T) {
	t.Parallel()
	nodes := cellFleet(40, 4, 1)
	class, rnd := ttsClass(nodes), NewSource(1)
	for i := range 200 {
		q := &Query{Skip: Only(2), Want: 2, IgnoreFull: i%3 == 0, AffinityKey: []string{"", fmt.Sprint(i)}[i%2]}
		if got := class.Choose(make([]*Node, 0, 2), q, rnd); len(got) != 2 || got[0].Cell() != 2 || got[1].Cell() != 2 {
			t.Fatalf("got %q, want two of cell 2", ids(got))
		}
	}
	q := &Query{Skip: 0b1111}
	if got := class.Choose(make([]*Node, 0, 2), q, rnd); len(got) != 0 {
		t.Errorf("got %q although all cells are skipped", ids(got))
	}
	checkBreakdown(t, class.Breakdown(&Query{Skip: CellMask(0).With(1).With(3)}), map[Reason]int{ReasonUnreachable: 20})
}

// With one cell, or several, load inside the fleet stays as even.
func TestSpreadOverCells(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{4, 16} {
		nodes := cellFleet(spreadNodes, cells, 1000)
		class, rnd, dst := ttsClass(nodes), NewSource(1), make([]*Node, 0, 1)
		for range spreadNodes * spreadMean {
			dst = class.Choose(dst[:0], &Query{}, rnd)
			dst[0].TryTake(1)
		}
		if got := mostPending(nodes); got > spreadMean+6 {
			t.Errorf("%d cells: %d jobs on the fullest node, want at most %d", cells, got, spreadMean+6)
		}
	}
}
