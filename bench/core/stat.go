package main

import (
	"math"
	"slices"
)

// quantile is the q-th (0 to 1) of values, which it sorts; NaN without any.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	i := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(i, 0), len(values)-1)]
}

// median is that of values, which it leaves as they are.
func median(values []float64) float64 { return quantile(slices.Clone(values), 0.5) }

// ratios divides value by value.
func ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// rounded keeps four figures, so that the file does not suggest more.
func rounded(f float64) float64 {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(f))))
	if scale > 1e6 {
		scale = 1e6
	}
	return math.Round(f*scale) / scale
}
