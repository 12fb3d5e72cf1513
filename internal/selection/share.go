package selection

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/freeslot/freeslot"
)

// Share is the part of a fleet that one replica tries first. Replicas that do not hear
// of each other's choices at once would send two jobs after one free slot; with shares
// they rarely look at the same node while there is room. Every replica computes its own
// from the names of all: nothing has to be agreed, and where two of them know of
// different replicas for a while they share some nodes, which costs refusals only.
//
// A node belongs to the replica with the highest random weight for it (Thaler and
// Ravishankar 1998), so that when a replica comes or goes no other node moves than
// those it gets or had. A nil *Share is no part: all nodes are alike. It is immutable.
type Share struct {
	self  int
	seeds []uint64 // of each replica
}

// NewShare is the share of the replica self among all replicas, named once each. It is
// nil if there is no other, or self is not among them.
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

// Has reports whether the node of this id is in the share. Cost: a few nanoseconds for
// each replica.
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

// weight mixes as the last steps of MurmurHash3 do.
func weight(node, seed uint64) uint64 {
	h := node ^ seed
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// NewClass is [NewClass] for a replica with this share, which may be nil.
func (s *Share) NewClass(nodes []*Node, cfg *Config, service string, r *freeslot.Requirement) *Class {
	return newClass(s, nodes, cfg, NewIdentity(service, r))
}
