package selection

import (
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// probes is how many places of the ring a key looks at. With 21 no node gets more
// than about 1.05 times its share of the keys (Appleton and O'Reilly 2015). One whose
// point lies close behind another's can get fewer.
const probes = 21

// ring finds nodes by keys, by multi-probe consistent hashing: every node has a few
// points on a circle, every key 21 places; of all places the one nearest before a
// point decides. The alternative, a hundred points for each node and one place for
// each key, finds faster but takes some 40 times the memory, for each class. When a
// node comes or goes only keys that it gets or had move.
//
// A node has points in proportion to its capacity: one for each unit slots, rounded.
// The unit is the power of two from which on an average node has 2 to 4 of them, so
// it stays as it is when a few nodes come or go; when it does change, most keys of
// nodes with several points stay and others move. Memory: 12 bytes a point and at
// most twice that with the index, 24 to 96 bytes a node.
type ring struct {
	// points are sorted: 40 bits of place, 24 bits of the node's index.
	points []uint64
	// first is, for each interval of equal size, the first point in or after it.
	first []uint32
	shift uint
}

const (
	indexBits = 24
	indexMask = 1<<indexBits - 1
)

// ringOf makes the tier's ring when it is first asked for; other callers wait for
// that meanwhile, some milliseconds for 10,000 nodes.
func (t *tier) ringOf() *ring {
	t.ringOnce.Do(func() { t.ring = newRing(t.nodes) })
	return t.ring
}

// newRing depends on the nodes' ids and capacities alone, so all replicas make the
// same one, but for nodes whose points coincide in all 40 bits. It reads capacities
// once: they may change meanwhile.
func newRing(nodes []*Node) *ring {
	capacity, limits := 0, make([]int, len(nodes))
	for i, n := range nodes {
		limits[i] = n.Max()
		capacity += limits[i]
	}
	unit := 1
	for capacity >= 4*unit*len(nodes) {
		unit *= 2
	}
	r := &ring{points: make([]uint64, 0, capacity/unit+len(nodes))}
	for i, n := range nodes {
		hash := xxhash.Sum64String(n.ID())
		for k := range max((limits[i]+unit/2)/unit, 1) {
			place := mix64(hash + uint64(k)*nextTry)
			r.points = append(r.points, place&^indexMask|uint64(i)&indexMask)
		}
	}
	slices.Sort(r.points)
	r.points = slices.Clip(r.points)
	r.index()
	return r
}

func (r *ring) index() {
	width := bits.Len(uint(len(r.points) - 1)) // at least one interval a point
	r.shift = uint(64 - width)
	r.first = make([]uint32, 1<<width)
	next := 0
	for i := range r.first {
		for next < len(r.points) && r.points[next]>>r.shift < uint64(i) {
			next++
		}
		r.first[i] = uint32(next)
	}
}

// find returns the index of a key's node.
func (r *ring) find(hash uint64) int {
	var best uint64
	nearest := ^uint64(0)
	for range probes {
		hash += nextTry
		place := mix64(hash)
		point := r.after(place)
		if distance := point&^indexMask - place&^indexMask; distance < nearest {
			best, nearest = point, distance
		}
	}
	return int(best & indexMask)
}

// after returns the first point at or after a place, going round.
func (r *ring) after(place uint64) uint64 {
	i := int(r.first[place>>r.shift])
	for i < len(r.points) && r.points[i]&^indexMask < place&^indexMask {
		i++
	}
	if i == len(r.points) {
		i = 0
	}
	return r.points[i]
}

// hashKey is the same in every process, as must be the node that a key leads to.
func hashKey(key string) uint64 { return xxhash.Sum64String(key) }

// mix64 is the output function of SplitMix64, a bijection.
func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
