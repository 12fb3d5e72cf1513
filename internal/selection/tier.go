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
	own            int // in front: this replica's share
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
func (t *tier) of(cell int) *span { return &t.spans[t.at[cell]] }

// find returns the span of a cell, nil if it has none.
func (t *tier) find(cell int) *span {
	if s := &t.spans[t.at[cell]]; s.cell == cell {
		return s
	}
	return nil
}

// sorter sorts nodes by tier, cell and share, stably and in one pass over a count of each.
type sorter struct {
	nodes []*Node
	group []int32 // of each node: (tier * cells + cell) * 2, one more for those of others; -1 for none
	count []int32 // of each group
	cells int
}

func newSorter(nodes []*Node, tiers int) *sorter {
	s := &sorter{nodes: nodes, group: make([]int32, len(nodes)), cells: 1}
	for i, n := range nodes {
		s.group[i] = -1
		s.cells = max(s.cells, n.Cell()+1)
	}
	s.count = make([]int32, tiers*s.cells*2)
	return s
}

func (s *sorter) put(i, tier int, own bool) {
	group := (tier*s.cells + s.nodes[i].Cell()) * 2
	if !own {
		group++
	}
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
	for place := range len(s.count) / s.cells / 2 {
		to := int(next[(place+1)*s.cells*2-1])
		if to > from {
			t := newTier(place, all[from:to:to])
			for i := range t.spans {
				t.spans[i].own = int(s.count[(place*s.cells+t.spans[i].cell)*2])
			}
			tiers = append(tiers, t)
		}
		from = to
	}
	return tiers
}
