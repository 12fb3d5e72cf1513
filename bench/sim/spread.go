package sim

import "math"

// spread is how evenly nodes are loaded, averaged over the looks at it. A node's load is used / slots.
type spread struct {
	looks                     int
	mean, deviation, max, all float64
	full                      float64
}

func (s *spread) look(t *truth) {
	var sum, squares, highest float64
	full := 0
	for i, slots := range t.slots {
		load := float64(t.used[i]) / float64(slots)
		sum += load
		squares += load * load
		highest = max(highest, load)
		if t.used[i] == slots {
			full++
		}
	}
	n := float64(len(t.slots))
	mean := sum / n
	s.looks++
	s.mean += mean
	s.max += highest
	s.full += float64(full) / n
	if mean > 0 {
		s.deviation += math.Sqrt(max(squares/n-mean*mean, 0)) / mean
		s.all += highest / mean
	}
}

// Spread is how evenly nodes are loaded: averages over moments of the run. A node's load is its share of slots
// in use.
type Spread struct {
	Mean float64 `json:"mean_load"`
	// Variation is the coefficient of variation: the standard deviation over nodes divided by the mean.
	Variation float64 `json:"coefficient_of_variation"`
	MaxOver   float64 `json:"max_over_mean"`
	// Full is the share of nodes without a free slot.
	Full float64 `json:"full_nodes"`
}

func (s *spread) summary() Spread {
	n := float64(max(s.looks, 1))
	return Spread{Mean: s.mean / n, Variation: s.deviation / n, MaxOver: s.all / n, Full: s.full / n}
}
