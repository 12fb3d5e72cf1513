package selection

import (
	"math"
	"sync/atomic"
)

// state is a node's capacity, its cell, and what may keep it from taking jobs, in one
// word: a choice sees by a single number that nothing does.
type state struct{ word atomic.Uint64 }

const (
	// The lower half is the capacity; its sign is set if any of the flags is, which
	// makes it too little for any job.
	stateClosed   = 1 << 31
	stateDraining = 1 << 32
	// stateRefused: there were refusals since the last success. Whether they make a
	// quarantine is in rare.rest.
	stateRefused = 1 << 33
	stateFlags   = stateDraining | stateRefused
	stateCell    = 40 // where the cell begins
)

// limit is the capacity, below 0 if a flag is set.
func (s *state) limit() int { return int(int32(uint32(s.word.Load()))) }

func (s *state) max() int { return int(s.word.Load() & math.MaxInt32) }

func (s *state) cell() int { return int(s.word.Load() >> stateCell) }

func (s *state) has(flag uint64) bool { return s.word.Load()&flag != 0 }

func (s *state) set(flag uint64, on bool) {
	if s.has(flag) == on {
		return // most say what is known: that saves the line from being written
	}
	s.update(func(word uint64) uint64 {
		if on {
			return word | flag
		}
		return word &^ flag
	})
}

func (s *state) setMax(slots int) {
	s.update(func(word uint64) uint64 { return word&^math.MaxInt32 | uint64(slots) })
}

func (s *state) update(next func(word uint64) uint64) {
	for {
		word := s.word.Load()
		changed := next(word) &^ stateClosed
		if changed&stateFlags != 0 {
			changed |= stateClosed
		}
		if s.word.CompareAndSwap(word, changed) {
			return
		}
	}
}
