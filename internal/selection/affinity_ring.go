package selection

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// probes is how many places of the ring a key looks at. With 21 of them no node gets more than
// about 1.05 times its share of the keys (Appleton and O'Reilly 2015). A node whose point lies
// close behind another's can get fewer.
const probes = 21

// ring finds nodes by keys, by multi-probe consistent hashing: every node has a few points on a
// circle, every key 21 places; of all places the one nearest before a point decides. The
// alternative, a hundred points for each node and one place for each key, finds faster but takes
// some 40 times the memory, for each class. When a node comes or goes, only the keys move that it
// gets or had.
//
// A node has points in proportion to its capacity: one for each unit slots, rounded. The unit is
// the power of two with which an average node has 2 to 4 points, so it stays the same when a few
// nodes come or go. When it changes, most keys of nodes with several points stay and others move.
//
// A ring is its points, sorted: 40 bits of place, 24 bits of the node's index.
type ring []uint64

const (
	indexBits = 24
	indexMask = 1<<indexBits - 1
)

// ringOf makes the tier's ring when the first key asks for it; other callers wait meanwhile, some
// milliseconds for 10,000 nodes.
func (t *tier) ringOf() ring {
	t.ringOnce.Do(func() { t.ring = newRing(t.nodes) })
	return t.ring
}

// newRing depends on the nodes' ids and capacities alone, so all replicas make the same ring,
// except for nodes whose points coincide in all 40 bits. It reads capacities once: they may change
// meanwhile.
func newRing(nodes []*Node) ring {
	capacity, limits := 0, make([]int, len(nodes))
	for i, n := range nodes {
		limits[i] = n.Max()
		capacity += limits[i]
	}
	unit := 1
	for capacity >= 4*unit*len(nodes) {
		unit *= 2
	}
	r := make(ring, 0, capacity/unit+len(nodes))
	for i, n := range nodes {
		hash := xxhash.Sum64String(n.ID())
		for k := range max((limits[i]+unit/2)/unit, 1) {
			place := mix64(hash + uint64(k)*goldenGamma)
			r = append(r, place&^indexMask|uint64(i)&indexMask)
		}
	}
	slices.Sort(r)
	return slices.Clip(r)
}

// find returns the index of a key's node.
func (r ring) find(hash uint64) int {
	var best uint64
	nearest := ^uint64(0)
	for range probes {
		hash += goldenGamma
		place := mix64(hash)
		point := r.after(place)
		if distance := point&^indexMask - place&^indexMask; distance < nearest {
			best, nearest = point, distance
		}
	}
	return int(best & indexMask)
}

// after returns the first point at or after a place, going round.
func (r ring) after(place uint64) uint64 {
	i, _ := slices.BinarySearch(r, place&^indexMask)
	return r[i%len(r)]
}

// hashKey is the same in every process, because a key must lead to the same node everywhere.
func hashKey(key string) uint64 { return xxhash.Sum64String(key) }
