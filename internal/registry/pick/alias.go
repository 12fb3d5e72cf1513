package pick

import "math/bits"

// aliases draws in proportion to weights in one step (Walker 1977, Vose 1991): each member has an
// equal column, which it shares with at most one other. nil stands for equal weights.
type aliases []column

// column belongs to its own member below bound, of 2^32, and from there on to other.
type column struct{ bound, other uint32 }

func newAliases(members []member, total float64) aliases {
	table, heights := make(aliases, len(members)), make([]float64, len(members))
	low, high := make([]uint32, 0, len(members)), make([]uint32, 0, len(members))
	for i := range members {
		heights[i] = float64(members[i].weight) * float64(len(members)) / total
		if heights[i] < 1 {
			low = append(low, uint32(i))
		} else {
			high = append(high, uint32(i))
		}
	}
	for len(low) > 0 && len(high) > 0 {
		short, tall := low[len(low)-1], high[len(high)-1]
		low = low[:len(low)-1]
		table[short] = column{bound: uint32(heights[short] * (1 << 32)), other: tall}
		heights[tall] -= 1 - heights[short]
		if heights[tall] < 1 {
			high = high[:len(high)-1]
			low = append(low, tall)
		}
	}
	// What is left has height 1, apart from errors of rounding.
	for _, i := range append(low, high...) {
		table[i] = column{other: i}
	}
	return table
}

// draw returns the index of one of n members.
func (t aliases) draw(n int, random uint64) int {
	i, rest := bits.Mul64(random, uint64(n))
	if t == nil || uint32(rest>>32) < t[i].bound {
		return int(i)
	}
	return int(t[i].other)
}
