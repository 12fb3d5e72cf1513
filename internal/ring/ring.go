// Package ring finds the member of a fleet that a key belongs to, by multi-probe consistent hashing
// (Appleton and O'Reilly 2015). Every member has a few points on a circle, and every key has 21
// places. The point that lies nearest before one of these places decides. The alternative, a
// hundred points for each member and one place for each key, takes some 20 times the memory. When a
// member comes or goes, only the keys move that it gets or had.
package ring

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// probes is the number of places of the ring that a key looks at. With 21, no member gets more than
// about 1.05 times its share of the keys. A member whose point lies close behind another's can get
// fewer.
const probes = 21

const (
	indexBits = 24
	indexMask = 1<<indexBits - 1
)

// Ring is immutable. The zero value has no members; do not ask it.
type Ring struct {
	// points are sorted: 40 bits of place, 24 bits of the member's index.
	points []uint64
	// first holds, for each equal part of the circle, the index of the first point in or after it.
	// There are at least as many parts as points and at most twice as many, so that a search takes
	// a step or two.
	first []uint32
	shift int // shifts a place to get its part
}

// New makes a ring of up to 16 million members; a key gets an index of members. It depends on ids
// and sizes alone, so all processes make the same ring, except for members whose points coincide in
// all 40 bits. It calls size once for each member: sizes may change meanwhile.
//
// A member has points in proportion to its size: one for each unit, rounded, and at least one. The
// unit is the power of two, at least 1, with which an average member has 2 to 4 points, so it stays
// the same when a few members come or go. When it changes, most keys of members with several points
// stay and others move.
func New[T any](members []T, id func(T) string, size func(T) int) *Ring {
	total, sizes := 0, make([]int, len(members))
	for i, m := range members {
		sizes[i] = size(m)
		total += sizes[i]
	}
	unit := 1
	for total >= 4*unit*len(members) && len(members) > 0 {
		unit *= 2
	}
	points := make([]uint64, 0, total/unit+len(members))
	for i, m := range members {
		hash := Hash(id(m))
		for k := range max((sizes[i]+unit/2)/unit, 1) {
			place := Mix(hash + uint64(k)*Gamma)
			points = append(points, place&^indexMask|uint64(i)&indexMask)
		}
	}
	return sorted(points)
}

// sorted makes a ring of points in any order. Places are hashes and so evenly spread: parts have
// few points, and sorting takes a tenth of the time of slices.Sort.
func sorted(points []uint64) *Ring {
	width := bits.Len(uint(len(points)))
	r := &Ring{points: make([]uint64, len(points)), first: make([]uint32, 1<<width), shift: 64 - width}
	for _, point := range points {
		r.first[point>>r.shift]++
	}
	end := uint32(0)
	for part, count := range r.first {
		end += count
		r.first[part] = end
	}
	for _, point := range points { // from the end of each part to its first point
		at := &r.first[point>>r.shift]
		*at--
		r.points[*at] = point
	}
	for i := 1; i < len(r.points); i++ {
		for k := i; k > 0 && r.points[k-1] > r.points[k]; k-- {
			r.points[k-1], r.points[k] = r.points[k], r.points[k-1]
		}
	}
	return r
}

// Find returns the index of the member that a key's hash leads to. Further tries, from 1 on, are
// drawn anew from the ring. They do not lead to the neighbour, so the keys that one member does not
// take spread over all others (Chen, Coleman and Shrivastava 2021).
func (r *Ring) Find(hash, try uint64) int {
	hash = Mix(hash + try*Gamma)
	var best uint64
	nearest := ^uint64(0)
	for range probes {
		hash += Gamma
		place := Mix(hash)
		point := r.after(place)
		if distance := point&^indexMask - place&^indexMask; distance < nearest {
			best, nearest = point, distance
		}
	}
	return int(best & indexMask)
}

// after returns the first point at or after a place, going round.
func (r *Ring) after(place uint64) uint64 {
	i := int(r.first[place>>r.shift])
	for i < len(r.points) && r.points[i]&^indexMask < place&^indexMask {
		i++
	}
	if i == len(r.points) {
		i = 0
	}
	return r.points[i]
}

// Hash returns the same in every process, because a key must lead to the same member everywhere.
func Hash(key string) uint64 { return xxhash.Sum64String(key) }

// Gamma is the step of SplitMix64: 2^64 over the golden ratio, made odd.
const Gamma = 0x9e3779b97f4a7c15

// Mix is the output function of SplitMix64, a bijection.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
