package ring

import (
	"fmt"
	"math"
	"testing"
)

type member struct {
	id   string
	size int
}

func fleet(n, size int) []member {
	out := make([]member, n)
	for i := range out {
		out[i] = member{fmt.Sprintf("member-%d", i), size}
	}
	return out
}

func of(members []member) *Ring {
	return New(members, func(m member) string { return m.id }, func(m member) int { return m.size })
}

// The ring against a walk over all points.
func TestAgreesWithTwin(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 2, 3, 17, 256, 1000} {
		members := fleet(count, 1+count%7)
		if count > 2 {
			members[1].size = 999
		}
		r := of(members)
		places := []uint64{0, math.MaxUint64}
		for i := range uint64(300) {
			places = append(places, Mix(i), r.points[i%uint64(len(r.points))], r.points[i%uint64(len(r.points))]+1<<indexBits)
		}
		for _, place := range places {
			want, nearest := uint64(0), uint64(math.MaxUint64)
			for _, point := range r.points {
				if distance := point&^indexMask - place&^indexMask; distance < nearest {
					want, nearest = point, distance
				}
			}
			if got := r.after(place); got != want {
				t.Fatalf("%d members: after %x comes %x, want %x", count, place, got, want)
			}
		}
	}
}

// The same keys lead to the same members for ever: processes of two versions must agree.
func TestPinned(t *testing.T) {
	t.Parallel()
	r := of(fleet(100, 4))
	var got [4]int
	for i := range got {
		got[i] = r.Find(Hash(fmt.Sprint("key-", i)), uint64(i))
	}
	if want := [4]int{5, 64, 64, 30}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{1000, 100000} {
		members := fleet(n, 1)
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				of(members)
			}
		})
	}
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1000, 100000} {
		r := of(fleet(n, 64))
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var hash uint64
			for b.Loop() {
				hash += Gamma
				r.Find(hash, 0)
			}
		})
	}
}
