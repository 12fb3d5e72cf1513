package collector

import (
	"math"
)

// rounded keeps figures short in JSON. Three digits are enough for a machine, and a change of
// further digits would only be sent.
func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

// share returns part of whole as 0 to 1.
func share(part, whole float64) float64 {
	if whole <= 0 || math.IsNaN(part) {
		return 0
	}
	return rounded(min(max(part/whole, 0), 1))
}

// bytesOf converts a size, which fits an int64 for some more centuries.
func bytesOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
