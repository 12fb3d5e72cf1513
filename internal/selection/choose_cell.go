package selection

// cellDraws is how often a cell is drawn by free slots before it is drawn by capacity. In a fleet
// of equal nodes with a fifth of the slots free, five of six choices are made by the free slots.
const cellDraws = 8

// pick returns the cell of the tier from which candidates are taken next: the cell of the
// candidates so far, otherwise one that was not tried. It returns nil if there is none left.
func (s *choice) pick(t *tier, tried CellMask) *cellPart {
	only := s.cell
	if len(t.parts) == 1 && only < 0 {
		only = t.parts[0].cell
	}
	if only < 0 {
		if part := s.drawByFreeSlots(t, tried); part != nil {
			return part
		}
		return s.drawByCapacity(t, tried)
	}
	if tried.Has(only) {
		return nil
	}
	return t.part(only)
}

// drawByFreeSlots draws a cell with probability in proportion to its free slots, by rejection: it
// draws a node, and accepts it with the probability of its free slots divided by the most that a
// node can have. So no sum must be kept up to date. It returns nil if every drawn node was
// rejected.
func (s *choice) drawByFreeSlots(t *tier, tried CellMask) *cellPart {
	for range cellDraws {
		n := t.nodes[s.rnd.intn(len(t.nodes))]
		taken, limit, ok := n.ready(s.w)
		if ok && !tried.Has(n.Cell()) && s.rnd.intn(t.most) < limit-taken {
			return t.part(n.Cell())
		}
	}
	return nil
}

// drawByCapacity draws one of the cells that were not tried, with probability in proportion to its
// capacity when the list was made.
func (s *choice) drawByCapacity(t *tier, tried CellMask) *cellPart {
	total := 0
	for i := range t.parts {
		if !tried.Has(t.parts[i].cell) {
			total += t.parts[i].capacity
		}
	}
	if total == 0 {
		return nil
	}
	left := s.rnd.intn(total)
	for i := range t.parts {
		if tried.Has(t.parts[i].cell) {
			continue
		}
		if left -= t.parts[i].capacity; left < 0 {
			return &t.parts[i]
		}
	}
	return nil
}
