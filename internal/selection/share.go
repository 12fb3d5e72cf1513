package selection

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Share is the part of a fleet that one replica tries first. Replicas hear of each other's choices
// late and would send two jobs to one free slot. With shares they rarely look at the same node
// while there is room. Every replica computes its own share from the names of all replicas, so they
// need no agreement. While two of them know different replicas, some nodes are in two shares, which
// only costs refusals.
//
// A node belongs to the replica with the highest random weight for it (Thaler and Ravishankar
// 1998). When a replica comes or goes, only the nodes that it gets or had move. A nil *Share means
// no share: all nodes are equal. A Share is immutable.
type Share struct {
	self  int
	seeds []uint64 // one for each replica
}

// NewShare returns the share of the replica self among all replicas, each named once. It returns
// nil if there is no other replica, or self is not among them.
func NewShare(self string, replicas []string) *Share {
	at := slices.Index(replicas, self)
	if at < 0 || len(replicas) < 2 {
		return nil
	}
	s := &Share{self: at, seeds: make([]uint64, len(replicas))}
	for i, name := range replicas {
		s.seeds[i] = xxhash.Sum64String(name)
	}
	return s
}

// Has reports whether the node with this id is in the share. Cost: a few nanoseconds for each
// replica.
func (s *Share) Has(node string) bool {
	if s == nil {
		return false
	}
	hash := xxhash.Sum64String(node)
	own := weight(hash, s.seeds[s.self])
	for i, seed := range s.seeds {
		if w := weight(hash, seed); w > own || w == own && seed > s.seeds[s.self] && i != s.self {
			return false
		}
	}
	return true
}

// weight mixes like the last steps of MurmurHash3.
func weight(node, seed uint64) uint64 {
	h := node ^ seed
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
