package selection

// cellDraws is how often a cell is drawn by the free slots of a node of it before it
// is drawn by capacity: in a fleet of equal nodes of which a fifth of the slots is
// free, five of six choices go by the free slots.
const cellDraws = 8

// pick chooses the cell of the tier from which candidates are taken next, nil if
// there is none left: the one of the candidates so far, else one that was not tried.
func (s *choice) pick(t *tier, tried CellMask) *span {
	switch {
	case s.first != nil && s.cell < 0:
		first := s.first
		s.first = nil
		return first
	case s.cell >= 0:
		if tried.Has(s.cell) {
			return nil
		}
		return t.find(s.cell)
	case len(t.spans) == 1:
		if tried.Has(t.spans[0].cell) {
			return nil
		}
		return &t.spans[0]
	}
	if cell := t.drawCell(s.w, tried, s.rnd); cell != nil {
		return cell
	}
	return s.drawByCapacity(t, tried)
}

// drawCell draws a cell with probability in proportion to its free slots, by
// rejection: a node is drawn, and taken with the probability of its free slots over
// the most that a node can have. Nothing has to be kept up to date for that. nil
// means that every node drawn was rejected.
func (t *tier) drawCell(w need, tried CellMask, rnd *Source) *span {
	for range cellDraws {
		word := rnd.Uint64()
		n := t.nodes[word&(1<<32-1)*uint64(len(t.nodes))>>32]
		taken, limit, ok := n.ready(w)
		if free := limit - taken; ok && !tried.Has(n.Cell()) && int(word>>32*uint64(t.most)>>32) < free {
			return t.of(n.Cell())
		}
	}
	return nil
}

// drawPairs is drawCell among all cells, with the cell's nodes.
func (t *tier) drawPairs(w need, rnd *Source) (cell *span, nodes pairs) {
	if cell = t.drawCell(w, 0, rnd); cell == nil {
		return nil, pairs{}
	}
	return cell, t.pairs(cell)
}

func (t *tier) pairs(s *span) pairs {
	return pairs{nodes: t.nodes[s.from:s.to], own: s.own}
}

// drawByCapacity draws one of the cells that were not tried, with probability in
// proportion to its capacity when the list was made.
func (s *choice) drawByCapacity(t *tier, tried CellMask) *span {
	total := 0
	for i := range t.spans {
		if !tried.Has(t.spans[i].cell) {
			total += t.spans[i].capacity
		}
	}
	if total == 0 {
		return nil
	}
	left := s.rnd.intn(total)
	for i := range t.spans {
		if tried.Has(t.spans[i].cell) {
			continue
		}
		if left -= t.spans[i].capacity; left < 0 {
			return &t.spans[i]
		}
	}
	return nil
}
