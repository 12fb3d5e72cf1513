package selection

import "slices"

// rounds is how often a list is sampled before it is walked. In a fleet of which
// half is free the walk is then needed once in 256 choices; a nearly full one
// pays for eight checks that the walk would not have needed.
const rounds = 4

// Choose appends up to q.Want candidates to dst, in the order in which they
// should be tried, and returns it. It never grows dst: at most its free capacity
// is used, and a dst without any gets nothing. Candidates are distinct and
// differ from what dst already holds. Those of one call are all of one cell.
//
// The cell is chosen first: one with nodes in the first tier that has a qualifying
// node, at random, weighted by the free slots that it has in that tier. Every
// candidate is then chosen as the first would be if the earlier ones were not there:
// the least loaded of q.Samples nodes drawn from the first tier that has any
// qualifying node of the cell left (under [PolicyBinpack] the most loaded). For a
// q.AffinityKey, and for a [Share], see the package comment.
//
// If it appends nothing, all nodes failed the query when they were looked at; if
// fewer than could be, all others of the cell did. [Class.Breakdown] says how.
//
// q is only read. Choose allocates nothing, except that the first key of a class has a
// ring made. Cost: a few checks in general, one per node at worst.
func (c *Class) Choose(dst []*Node, q *Query, rnd *Source) []*Node {
	begin, limit := len(dst), len(dst)+min(max(q.Want, 1), cap(dst)-len(dst))
	var first *span
	if c.paired && q.plain() {
		w := q.need()
		from := &c.pairs
		if from.nodes == nil {
			var drawn pairs
			first, drawn = c.tiers[0].drawPairs(w, rnd)
			from = &drawn
		}
		switch {
		case from.own > 1:
			dst = from.fillOwn(dst, limit, w, rnd)
		case len(from.nodes) > 1:
			dst = from.fillPlain(dst, limit, w, rnd)
		}
		if len(dst) == limit {
			return dst
		}
	}
	return c.choose(dst, begin, limit, q, rnd, first)
}

// plain reports whether two samples are to be compared and nothing besides.
func (q *Query) plain() bool {
	return q.Samples&^DefaultSamples|len(q.AffinityKey)|len(q.Exclude) == 0 && q.Skip == 0 && !q.IgnoreFull
}

// fillPlain adds candidates until dst is full or something is not plain sailing: a
// node is drawn that dst has, or no drawn node qualifies.
func (p *pairs) fillPlain(dst []*Node, limit int, w need, rnd *Source) []*Node {
	for len(dst) < limit {
		a, b := draw(p.nodes, rnd.Uint64())
		if len(dst) > 0 && (slices.Contains(dst, a) || slices.Contains(dst, b)) {
			return dst
		}
		n := lessLoaded(a, b, w)
		if n == nil {
			return dst
		}
		dst = append(dst, n)
	}
	return dst
}

// fillOwn is fillPlain for a replica with a share, which is in front of the nodes: one of
// the share, instead of the less loaded of two of all nodes, unless that one would still
// be the less loaded with a slot more taken. So a replica to which most clients came does
// not fill its share beside an idle fleet.
func (p *pairs) fillOwn(dst []*Node, limit int, w need, rnd *Source) []*Node {
	for len(dst) < limit {
		n := p.drawOwn(dst, w, rnd)
		if n == nil {
			return dst
		}
		a, b := draw(p.nodes, rnd.Uint64())
		if other := lessLoaded(a, b, w); other != nil && idler(other, n, w) && !slices.Contains(dst, other) {
			n = other
		}
		dst = append(dst, n)
	}
	return dst
}

// drawOwn draws from the share until a node is ready and not in not; nil if none is after
// some draws.
func (p *pairs) drawOwn(not []*Node, w need, rnd *Source) *Node {
	own := p.nodes[:p.own]
	usable := func(n *Node) bool {
		_, _, ok := n.ready(w)
		return ok && !slices.Contains(not, n)
	}
	for range 2 * rounds {
		if n := own[rnd.intn(len(own))]; usable(n) {
			return n
		}
	}
	return nil
}

// idler reports whether n would be less loaded than other with a slot more taken.
func idler(n, other *Node, w need) bool {
	taken, limit, _ := n.ready(w)
	takenOther, limitOther, _ := other.ready(w)
	return less(taken+1, limit, takenOther, limitOther)
}

// draw returns two distinct nodes of a list of at least two, from one random word. Either
// order is equally likely, so the first may win a tie. A 32-bit half of the word favours
// some nodes by at most one in 2^32 / len(nodes).
func draw(nodes []*Node, word uint64) (a, b *Node) {
	count := uint64(len(nodes))
	i := word & (1<<32 - 1) * count >> 32
	j := word >> 32 * (count - 1) >> 32
	if j >= i {
		j++
	}
	return nodes[i], nodes[j]
}

// lessLoaded returns the less loaded of two nodes if they are ready, the first in a
// tie, and nil if none is. Both are read before anything is decided, so that the
// second cache miss does not wait for the first.
func lessLoaded(a, b *Node, w need) *Node {
	takenA, limitA, okA := a.free(w)
	takenB, limitB, okB := b.free(w)
	if !okA || !okB {
		return readyOne(a, b, w)
	}
	// Which of them it is nobody can foretell: as a branch, every other choice would
	// wait here for its cache misses before the next could begin.
	pair, second := [2]*Node{a, b}, 0
	if less(takenB, limitB, takenA, limitA) {
		second = 1
	}
	return pair[second]
}

// readyOne is lessLoaded where something speaks against a node, or seems to.
func readyOne(a, b *Node, w need) *Node {
	takenA, limitA, okA := a.ready(w)
	takenB, limitB, okB := b.ready(w)
	switch {
	case okB && (!okA || less(takenB, limitB, takenA, limitA)):
		return b
	case okA:
		return a
	default:
		return nil
	}
}

// less orders two nodes by load. Fractions are compared crosswise: a product is
// below 2^33 * 2^16 and cannot overflow.
func less(takenA, limitA, takenB, limitB int) bool {
	return takenA*limitB < takenB*limitA
}

// choice is one call of Choose under way.
type choice struct {
	*Class
	q       *Query
	w       need
	rnd     *Source
	samples int
	limit   int // length of dst at which it ends
	// cell is that of the candidates so far, -1 while there are none.
	cell int
	// first is the cell that was drawn already, nil if none was.
	first *span
}

// choose is Choose in general. What dst has behind from is of this call; first is the
// cell that was drawn for it already, nil if none was.
func (c *Class) choose(dst []*Node, from, limit int, q *Query, rnd *Source, first *span) []*Node {
	s := choice{Class: c, q: q, w: q.need(), rnd: rnd, samples: q.Samples, limit: limit, cell: -1, first: first}
	if len(dst) > from {
		s.cell = dst[from].Cell()
	}
	switch {
	case s.samples > 0:
		s.samples = min(s.samples, MaxSamples)
	case c.binpack:
		s.samples = MaxSamples
	default:
		s.samples = DefaultSamples
	}
	for _, t := range c.tiers {
		if len(dst) == s.limit {
			break
		}
		if q.AffinityKey != "" {
			dst = s.byKey(t, dst)
		}
		dst = s.fromTier(t, dst)
	}
	return dst
}

// fromTier fills dst as far as the cells of the tier go that may be chosen.
func (s *choice) fromTier(t *tier, dst []*Node) []*Node {
	tried := s.q.Skip
	for len(dst) < s.limit {
		cell := s.pick(t, tried)
		if cell == nil {
			break
		}
		before := len(dst)
		if dst = s.fill(t.nodes[cell.from:cell.to], dst); len(dst) > before {
			s.cell = cell.cell
		}
		tried = tried.With(cell.cell)
	}
	return dst
}

// fill adds candidates of a list until dst is full or the list has no more.
func (s *choice) fill(nodes, dst []*Node) []*Node {
	for len(dst) < s.limit {
		n := s.sample(nodes, dst)
		if n == nil {
			return s.walk(nodes, dst)
		}
		dst = append(dst, n)
	}
	return dst
}

// sample returns the winner of the first round that has one, nil if none has.
func (s *choice) sample(nodes, not []*Node) *Node {
	if s.samples == 2 && len(nodes) > 1 {
		return s.two(nodes, not)
	}
	for range rounds {
		if n := s.round(nodes, not); n != nil {
			return n
		}
	}
	return nil
}

// two is sample for two samples.
func (s *choice) two(nodes, not []*Node) *Node {
	for range rounds {
		a, b := draw(nodes, s.rnd.Uint64())
		takenA, limitA, okA := s.q.qualifies(a, s.w, not)
		takenB, limitB, okB := s.q.qualifies(b, s.w, not)
		switch {
		case okB && (!okA || s.better(takenB, limitB, takenA, limitA)):
			return b
		case okA:
			return a
		}
	}
	return nil
}

// round draws distinct nodes (by Floyd's algorithm) and returns the best of those
// that qualify and are not in not; ties are broken at random.
func (s *choice) round(nodes, not []*Node) *Node {
	var (
		drawn       [MaxSamples]int
		best        *Node
		taken, most int // slots taken on best, and its capacity
		equal       int // nodes as loaded as best, itself included
	)
	count := min(s.samples, len(nodes))
	for k := range count {
		last := len(nodes) - count + k
		i := s.rnd.intn(last + 1)
		if slices.Contains(drawn[:k], i) {
			i = last
		}
		drawn[k] = i
		n := nodes[i]
		used, limit, ok := s.q.qualifies(n, s.w, not)
		switch {
		case !ok:
		case best == nil || s.better(used, limit, taken, most):
			best, taken, most, equal = n, used, limit, 1
		case !s.better(taken, most, used, limit):
			if equal++; s.rnd.intn(equal) == 0 {
				best, taken, most = n, used, limit
			}
		}
	}
	return best
}

// better reports whether a node with the first load comes before one with the second.
func (s *choice) better(takenA, limitA, takenB, limitB int) bool {
	if s.binpack {
		return less(takenB, limitB, takenA, limitA)
	}
	return less(takenA, limitA, takenB, limitB)
}

// walk looks at every node of the list once, from a random start, and appends
// those that qualify until dst is full.
func (s *choice) walk(nodes, dst []*Node) []*Node {
	start := s.rnd.intn(len(nodes))
	for _, part := range [2][]*Node{nodes[start:], nodes[:start]} {
		for _, n := range part {
			if len(dst) == s.limit {
				return dst
			}
			if _, _, ok := s.q.qualifies(n, s.w, dst); ok {
				dst = append(dst, n)
			}
		}
	}
	return dst
}
