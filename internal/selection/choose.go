package selection

import "slices"

const (
	// rounds is how often a list is sampled before it is walked. In a fleet that is half free, one
	// choice in 256 then needs the walk. In a nearly full one, the samples add eight checks to it.
	rounds = 4
	// ownDraws is how often a node is drawn from the share.
	ownDraws = 8
)

// Choose appends up to q.Want candidates to dst, in the order in which they should be tried, and
// returns it. It uses at most dst's free capacity, so a dst without any gets nothing. The
// candidates are distinct, differ from what dst already holds, and are all in one cell.
//
// The cell is chosen first: at random among the cells of the first tier with a qualifying node,
// weighted by their free slots in that tier. Every candidate is then chosen as if the earlier ones
// did not exist. Among q.Samples nodes drawn from the first tier in which the cell has a qualifying
// node left, it is the least loaded one (under [PolicyBinpack] the most loaded one). The package
// comment explains a q.AffinityKey and a [Share].
//
// If it appends nothing, all nodes failed the query when it looked at them. If it appends fewer
// than q.Want, all other nodes of the cell did. [Class.Breakdown] returns the reasons.
//
// q is only read. Choose allocates nothing, except that the first key of a class makes its ring.
// Cost: a few checks in general, one for each node at worst.
func (c *Class) Choose(dst []*Node, q *Query, rnd *Source) []*Node {
	s := choice{
		Class: c, q: q, w: q.need(), rnd: rnd, samples: c.samples(q), cell: -1,
		limit: len(dst) + min(max(q.Want, 1), cap(dst)-len(dst)),
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

// choice is one call of Choose or Batch.
type choice struct {
	*Class
	q       *Query
	w       need
	rnd     *Source
	samples int
	limit   int // length of dst at which the call ends
	// cell is the cell of the candidates so far; -1 while there are none.
	cell int
}

// samples returns how many nodes are compared for one choice.
func (c *Class) samples(q *Query) int {
	switch {
	case q.Samples > 0:
		return min(q.Samples, MaxSamples)
	case c.binpack:
		return MaxSamples
	default:
		return DefaultSamples
	}
}

// fromTier fills dst from the cells of the tier that may be chosen.
func (s *choice) fromTier(t *tier, dst []*Node) []*Node {
	tried := s.q.Skip
	for len(dst) < s.limit {
		part := s.pick(t, tried)
		if part == nil {
			break
		}
		before := len(dst)
		if dst = s.fill(part, dst); len(dst) > before {
			s.cell = part.cell
		}
		tried = tried.With(part.cell)
	}
	return dst
}

// fill adds candidates of one cell until dst is full or the cell has no more.
func (s *choice) fill(part *cellPart, dst []*Node) []*Node {
	for len(dst) < s.limit {
		n := s.next(part, dst)
		if n == nil {
			return s.walk(part.nodes, dst)
		}
		dst = append(dst, n)
	}
	return dst
}

// next returns the next candidate in one cell. That is a node of this replica's share, unless the
// winner of a sample of all nodes would still be less loaded with one more slot taken. So a replica
// that most clients use does not fill its share beside an idle fleet. It returns nil if no drawn
// node qualifies.
func (s *choice) next(part *cellPart, not []*Node) *Node {
	n := s.sample(part.nodes, not)
	own := s.drawOwn(part, not)
	if own == nil || n != nil && s.idler(n, own) {
		return n
	}
	return own
}

// shares reports whether the replica's share of the part is tried first.
func (s *choice) shares(part *cellPart) bool {
	return part.own > 0 && !s.binpack && s.q.AffinityKey == "" && s.q.Skip == 0 && !s.q.IgnoreFull
}

// drawOwn draws from the share until a node qualifies. It returns nil if none does after some
// draws, and for queries to which the share does not apply.
func (s *choice) drawOwn(part *cellPart, not []*Node) *Node {
	if !s.shares(part) {
		return nil
	}
	for range ownDraws {
		n := part.nodes[s.rnd.intn(part.own)]
		if _, _, ok := s.q.qualifies(n, s.w, not); ok {
			return n
		}
	}
	return nil
}

// idler reports whether n would be less loaded than other with one more slot taken.
func (s *choice) idler(n, other *Node) bool {
	taken, limit, _ := n.ready(s.w)
	takenOther, limitOther, _ := other.ready(s.w)
	return less(taken+1, limit, takenOther, limitOther)
}

// sample returns the winner of the first round that has one; nil if none has.
func (s *choice) sample(nodes, not []*Node) *Node {
	for range rounds {
		if n := s.round(nodes, not); n != nil {
			return n
		}
	}
	return nil
}

// round draws distinct nodes (by Floyd's algorithm) and returns the best of those that qualify and
// are not in not. Among equally loaded nodes a random one wins.
func (s *choice) round(nodes, not []*Node) *Node {
	var (
		drawn       [MaxSamples]int
		best        *Node
		taken, most int // slots taken on best, and its capacity
		equal       int // number of nodes as loaded as best, including best
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

// better reports whether a node with the first load comes before a node with the second.
func (s *choice) better(takenA, limitA, takenB, limitB int) bool {
	if s.binpack {
		return less(takenB, limitB, takenA, limitA)
	}
	return less(takenA, limitA, takenB, limitB)
}

// less orders two nodes by load. It compares the fractions crosswise: a product is below
// 2^33 * 2^16 and cannot overflow.
func less(takenA, limitA, takenB, limitB int) bool {
	return takenA*limitB < takenB*limitA
}

// walk looks at every node of the list once, from a random start, and appends those that qualify
// until dst is full.
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
