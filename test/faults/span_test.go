package faults

import (
	"slices"
	"testing"
)

// TestSpans: times are joined and left out.
func TestSpans(t *testing.T) {
	t.Parallel()
	list := joined([]span{{5, 7}, {1, 2}, {6, 9}, {3, 3}, {2, 3}}, 0)
	if expected := (spans{{1, 3}, {5, 9}}); !slices.Equal(list, expected) {
		t.Errorf("joined are %v, expected %v", list, expected)
	}
	if near := joined(list, 2); !slices.Equal(near, spans{{1, 9}}) {
		t.Errorf("joined over a gap of 2 are %v", near)
	}
	for _, c := range []struct {
		of       span
		expected spans
	}{
		{span{0, 10}, spans{{0, 1}, {3, 5}, {9, 10}}},
		{span{2, 6}, spans{{3, 5}}},
		{span{6, 8}, nil},
		{span{9, 12}, spans{{9, 12}}},
	} {
		if got := list.outside(c.of); !slices.Equal(got, c.expected) {
			t.Errorf("outside are %v of %v, expected %v", got, c.of, c.expected)
		}
	}
	if _, is := list.at(3); is {
		t.Error("a span has its end")
	}
	if s, is := list.at(5); !is || s != (span{5, 9}) {
		t.Errorf("the span of 5 is %v", s)
	}
}
