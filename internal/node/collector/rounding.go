package collector

import (
	"math"
)

// rounded keeps shares short in JSON: more digits than three say nothing about a
// machine, and every change of them would be news.
func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

// share is part of whole as 0 to 1.
func share(part, whole float64) float64 {
	if whole <= 0 || math.IsNaN(part) {
		return 0
	}
	return rounded(min(max(part/whole, 0), 1))
}

// bytesOf is for sizes, which fit an int64 for some more centuries.
func bytesOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
