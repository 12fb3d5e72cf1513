package v1

import (
	"testing"
	"time"
)

// TestWeights: a record without a weight has 1, and one with 0 wants no traffic.
func TestWeights(t *testing.T) {
	t.Parallel()
	for weight, want := range map[string]struct {
		weight   float64
		disabled bool
		refused  bool
	}{
		"": {weight: 1}, "2.5": {weight: 2.5}, "0": {weight: 1, disabled: true}, "0.0": {weight: 1, disabled: true}, "-1": {weight: -1, refused: true},
	} {
		got, err := copyOf("shop", "a", map[string]string{"host": "10.0.0.1", "port": "80", "weight": weight}, 10*time.Second)
		if *got.Weight != want.weight || got.Disabled != want.disabled || (err != nil) != want.refused {
			t.Errorf("weight %q became %v, disabled %t, %v; expected %+v", weight, *got.Weight, got.Disabled, err, want)
		}
	}
}
