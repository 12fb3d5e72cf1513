package measure

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3},
	} {
		given := slices.Clone(c.values)
		if got := Median(c.values); got != c.want || !slices.Equal(given, c.values) {
			t.Errorf("median of %v is %v, expected %v", given, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.21: 2, 0.99: 5, 1: 5} {
		if got := Quantile([]float64{5, 1, 4, 2, 3}, q); got != want {
			t.Errorf("quantile %v is %v, expected %v", q, got, want)
		}
	}
}

func TestFourFigures(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]float64{12345.6: 12350, 0.123456: 0.1235, 0: 0, 59.987: 59.99, 1: 1} {
		if got := FourFigures(f); got != want {
			t.Errorf("%v is rounded to %v, expected %v", f, got, want)
		}
	}
}
