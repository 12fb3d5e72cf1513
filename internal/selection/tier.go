package selection

import (
	"cmp"
	"slices"
	"sync"

	"github.com/freeslot/freeslot/internal/ring"
)

// tier is a list of candidates of equal rank, grouped by cell.
type tier struct {
	nodes []*Node
	parts []cellPart // not empty, in the order of cells
	// most is the largest max_concurrency and capacity the sum of all at the time when the list was
	// made.
	most, capacity int

	ringOnce sync.Once
	ring     *ring.Ring
}

// ringOf returns the tier's ring. The first call makes it; other callers wait meanwhile, some
// milliseconds for 10,000 nodes. Nodes have points in proportion to their capacities.
func (t *tier) ringOf() *ring.Ring {
	t.ringOnce.Do(func() { t.ring = ring.New(t.nodes, (*Node).ID, (*Node).Max) })
	return t.ring
}

// cellPart holds the nodes of a tier in one cell.
type cellPart struct {
	cell     int
	nodes    []*Node
	own      int // number of nodes at the front that are in this replica's share
	capacity int
}

// part returns the nodes of a cell; nil if there are none.
func (t *tier) part(cell int) *cellPart {
	for i := range t.parts {
		if t.parts[i].cell == cell {
			return &t.parts[i]
		}
	}
	return nil
}

// candidate is a node with the index of its tier.
type candidate struct {
	node *Node
	tier int
	own  bool
}

// newTiers groups candidates into the tiers that have any, best first. It sorts list.
func newTiers(list []candidate) (tiers []*tier) {
	slices.SortFunc(list, func(a, b candidate) int {
		if byTier := cmp.Compare(a.tier, b.tier); byTier != 0 {
			return byTier
		}
		if byCell := cmp.Compare(a.node.cell, b.node.cell); byCell != 0 {
			return byCell
		}
		switch {
		case a.own == b.own:
			return 0
		case a.own:
			return -1
		default:
			return 1
		}
	})
	nodes := make([]*Node, len(list))
	for i, c := range list {
		nodes[i] = c.node
	}
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].tier == list[from].tier {
			to++
		}
		tiers = append(tiers, newTier(list[from:to], nodes[from:to:to]))
		from = to
	}
	return tiers
}

func newTier(list []candidate, nodes []*Node) *tier {
	t := &tier{nodes: nodes}
	from := 0
	for i, n := range nodes {
		if i == 0 || n.cell != nodes[from].cell {
			from = i
			t.parts = append(t.parts, cellPart{cell: n.cell})
		}
		p := &t.parts[len(t.parts)-1]
		p.nodes = nodes[from : i+1]
		p.capacity += n.Max()
		if list[i].own {
			p.own++
		}
		t.capacity += n.Max()
		t.most = max(t.most, n.Max())
	}
	return t
}
