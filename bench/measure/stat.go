package measure

import (
	"math"
	"slices"
	"time"
)

// Quantile is the q-th (0 to 1) of values; NaN without any.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return v[min(max(int(math.Ceil(q*float64(len(v))))-1, 0), len(v)-1)]
}

// Median is the mean of the two in the middle where the number of values is even; 0 without any.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// FourFigures rounds to four figures, so that a file does not suggest more. NaN and infinities
// become 0.
func FourFigures(f float64) float64 {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	scale := min(math.Pow(10, 3-math.Floor(math.Log10(math.Abs(f)))), 1e6)
	return math.Round(f*scale) / scale
}

// Milliseconds is a duration to the microsecond.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
