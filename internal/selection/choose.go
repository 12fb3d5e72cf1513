package selection

import (
	"cmp"
	"slices"
)

// rounds is how often a tier is sampled before it is walked. In a fleet of which
// half is free the walk is then needed once in 256 choices; a nearly full one
// pays for eight checks that the walk would not have needed.
const rounds = 4

// Choose appends up to q.Want candidates to dst, in the order in which they
// should be tried, and returns it. It never grows dst: at most its free capacity
// is used, and a dst without any gets nothing. Candidates are distinct and
// differ from what dst already holds.
//
// Every candidate is chosen as the first would be if the earlier ones were not
// there: the least loaded of q.Samples nodes drawn from the first tier that has
// any qualifying node left. If fewer than could be are appended, all others failed
// the query when they were looked at; [Class.Breakdown] says how.
//
// It allocates nothing. Cost: a few checks in general, one per node at worst.
func (c *Class) Choose(dst []*Node, q Query, rnd *Source) []*Node {
	q = q.withDefaults()
	limit := len(dst) + min(q.Want, cap(dst)-len(dst))
	for _, tier := range c.tiers {
		dst = q.chooseFrom(tier, dst, limit, rnd)
	}
	return dst
}

// chooseFrom fills dst up to limit as far as the tier goes.
func (q *Query) chooseFrom(tier, dst []*Node, limit int, rnd *Source) []*Node {
	for len(dst) < limit {
		n := q.sample(tier, dst, rnd)
		if n == nil {
			return q.walk(tier, dst, limit, rnd)
		}
		dst = append(dst, n)
	}
	return dst
}

// sample returns the winner of the first round that has one, nil if none has.
func (q *Query) sample(tier, not []*Node, rnd *Source) *Node {
	for range rounds {
		if n := q.round(tier, not, rnd); n != nil {
			return n
		}
	}
	return nil
}

// round draws distinct nodes (by Floyd's algorithm) and returns the least loaded
// of those that qualify and are not in not; ties are broken at random.
func (q *Query) round(tier, not []*Node, rnd *Source) *Node {
	var (
		drawn [MaxSamples]int
		best  *Node
		least int // slots taken on best
		equal int // nodes as loaded as best, itself included
	)
	count := min(q.Samples, len(tier))
	for k := range count {
		last := len(tier) - count + k
		i := rnd.intn(last + 1)
		if slices.Contains(drawn[:k], i) {
			i = last
		}
		drawn[k] = i
		n := tier[i]
		taken, why := q.check(n)
		if why != "" || slices.Contains(not, n) {
			continue
		}
		switch order := compare(n, taken, best, least); {
		case order < 0:
			best, least, equal = n, taken, 1
		case order == 0:
			equal++
			if rnd.intn(equal) == 0 {
				best, least = n, taken
			}
		}
	}
	return best
}

// walk looks at every node of the tier once, from a random start, and appends
// those that qualify until dst has limit entries.
func (q *Query) walk(tier, dst []*Node, limit int, rnd *Source) []*Node {
	start := rnd.intn(len(tier))
	for _, part := range [2][]*Node{tier[start:], tier[:start]} {
		for _, n := range part {
			if len(dst) == limit {
				return dst
			}
			if _, why := q.check(n); why == "" && !slices.Contains(dst, n) {
				dst = append(dst, n)
			}
		}
	}
	return dst
}

// compare orders two nodes by load; any node is less loaded than none. Fractions
// are compared crosswise: a product is below 2^31 * 2^16 and cannot overflow.
func compare(a *Node, takenA int, b *Node, takenB int) int {
	if b == nil {
		return -1
	}
	return cmp.Compare(int64(takenA)*int64(b.max), int64(takenB)*int64(a.max))
}
