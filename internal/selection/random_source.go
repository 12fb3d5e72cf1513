package selection

import (
	"math/bits"

	"github.com/freeslot/freeslot/internal/ring"
)

// Source is a small, fast pseudo-random generator (SplitMix64). The same seed gives the same
// choices. It is not fit for secrets, and not safe for concurrent use: give each goroutine its own.
// The zero value is the source of seed 0.
type Source struct{ state uint64 }

// NewSource returns a source for the seed.
func NewSource(seed uint64) *Source { return &Source{state: seed} }

// Uint64 returns the next 64 bits.
func (s *Source) Uint64() uint64 {
	s.state += ring.Gamma
	return ring.Mix(s.state)
}

// intn returns a number from 0 to n-1; n must be positive. The product's upper half favours some
// numbers by at most n/2^64, which does not matter here.
func (s *Source) intn(n int) int {
	hi, _ := bits.Mul64(s.Uint64(), uint64(n))
	return int(hi)
}
