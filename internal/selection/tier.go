package selection

import "sync"

// tier is a list of candidates of equal rank, those of a cell beside each other.
type tier struct {
	place int    // among the tiers that there could be, empty ones included
	pool  string // whose members they are, "" if any
	nodes []*Node
	spans []span // not empty, by cell
	at    [MaxCells]uint8
	// most is the largest max_concurrency, capacity the sum of all, when the list
	// was made.
	most, capacity int

	ringOnce sync.Once
	ring     *ring
}

// span is the part of a tier's nodes that is of one cell.
type span struct {
	cell, from, to int
	capacity       int
}

func newTier(place int, nodes []*Node) *tier {
	t := &tier{place: place, nodes: nodes}
	for i, n := range nodes {
		if last := len(t.spans) - 1; last < 0 || t.spans[last].cell != n.Cell() {
			t.at[n.Cell()] = uint8(len(t.spans))
			t.spans = append(t.spans, span{cell: n.Cell(), from: i})
		}
		s := &t.spans[len(t.spans)-1]
		s.to = i + 1
		s.capacity += n.Max()
		t.capacity += n.Max()
		t.most = max(t.most, n.Max())
	}
	return t
}

// of returns the span of a cell that has one.
func (t *tier) of(cell uint8) *span { return &t.spans[t.at[cell]] }

// find returns the span of a cell, nil if it has none.
func (t *tier) find(cell int) *span {
	if s := &t.spans[t.at[cell]]; s.cell == cell {
		return s
	}
	return nil
}

// sorter sorts nodes by tier and cell, stably and in one pass over a count of each.
type sorter struct {
	nodes []*Node
	group []int32 // of each node: tier * cells + cell, -1 for none
	count []int32 // of each group
	cells int
}

func newSorter(nodes []*Node, tiers int) *sorter {
	s := &sorter{nodes: nodes, group: make([]int32, len(nodes)), cells: 1}
	for i, n := range nodes {
		s.group[i] = -1
		s.cells = max(s.cells, n.Cell()+1)
	}
	s.count = make([]int32, tiers*s.cells)
	return s
}

func (s *sorter) put(i, tier int) {
	group := tier*s.cells + s.nodes[i].Cell()
	s.group[i] = int32(group)
	s.count[group]++
}

// tiers returns those that are not empty. total is the number of nodes put.
func (s *sorter) tiers(total int) []*tier {
	next := make([]int32, len(s.count)) // where the next node of a group goes
	for i := 1; i < len(next); i++ {
		next[i] = next[i-1] + s.count[i-1]
	}
	all := make([]*Node, total)
	for i, group := range s.group {
		if group >= 0 {
			all[next[group]] = s.nodes[i]
			next[group]++
		}
	}
	var tiers []*tier
	from := 0
	for place := range len(s.count) / s.cells {
		to := int(next[(place+1)*s.cells-1])
		if to > from {
			tiers = append(tiers, newTier(place, all[from:to:to]))
		}
		from = to
	}
	return tiers
}
