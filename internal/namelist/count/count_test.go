package count

import (
	"maps"
	"strconv"
	"sync"
	"testing"
)

func BenchmarkInc(b *testing.B) {
	s := NewSet(24)
	b.Run("one", func(b *testing.B) {
		for i := range b.N {
			s.Inc(i & 7)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.Inc(3)
			}
		})
	})
}

// No addition is lost, however many goroutines count.
func TestSetLosesNothing(t *testing.T) {
	t.Parallel()
	const goroutines, each = 16, 10_000
	s := NewSet(9)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range each {
				s.Inc(i % 9)
				s.Add((i+1)%9, 2)
			}
		})
	}
	all.Wait()
	total := uint64(0)
	for i := range s.Len() {
		total += s.Get(i)
	}
	if total != goroutines*each*3 {
		t.Errorf("the counters have %d in all; want %d", total, goroutines*each*3)
	}
}

// Totals go on when names come and go, and their number is bounded.
func TestNamed(t *testing.T) {
	t.Parallel()
	var n Named
	if got := n.Totals(); len(got) != 0 {
		t.Errorf("totals before the first set: %v; want none", got)
	}
	first := n.Set([]string{"testers", "rest"})
	first.Inc(0)
	second := n.Set([]string{"rest", "few"})
	first.Inc(1) // by a caller that has the former set still
	second.Add(0, 2)
	n.Set([]string{"few"}).Inc(0)
	want := map[string]uint64{"testers": 1, "rest": 3, "few": 1}
	if got := n.Totals(); !maps.Equal(got, want) {
		t.Errorf("totals are %v; want %v", got, want)
	}
	for i := range 2 * maxNames {
		n.Set([]string{strconv.Itoa(i)}).Inc(0)
	}
	got, sum := n.Totals(), uint64(0)
	for _, count := range got {
		sum += count
	}
	if len(got) > maxNames+1 || got[Other] == 0 || sum != 5+2*maxNames {
		t.Errorf("%d names with %d in all, %d of them other; want at most %d names with %d, some of them other",
			len(got), sum, got[Other], maxNames+1, 5+2*maxNames)
	}
}
