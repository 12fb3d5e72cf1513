// Package count counts lookups of name lists, and decisions of chains, in the processes that make
// them. To count is one atomic addition, on a line of memory that goroutines seldom share.
package count

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

const (
	// line holds the counters of one line of the processor's cache, of 64 bytes.
	line = 8
	// maxShards bounds the memory of a set: more processors share shards.
	maxShards = 16
)

// Set is a fixed number of counters that only grow. It is safe for concurrent use.
type Set struct {
	cells  int
	stride uintptr // of the counters of a shard, in counters
	mask   uintptr
	counts []atomic.Uint64
}

// NewSet makes a set of counters, which begin at 0.
func NewSet(cells int) *Set {
	shards := 1
	for shards < runtime.GOMAXPROCS(0) && shards < maxShards {
		shards *= 2
	}
	stride := (cells + line - 1) / line * line
	return &Set{
		cells: cells, stride: uintptr(stride), mask: uintptr(shards - 1), counts: make([]atomic.Uint64, shards*stride),
	}
}

// Inc adds 1 to a counter.
func (s *Set) Inc(cell int) { s.Add(cell, 1) }

// Add adds n to a counter.
func (s *Set) Add(cell int, n uint64) {
	// Goroutines have stacks of their own, of 2 KiB and more, so two that count at the same time
	// seldom meet in a shard. The address only chooses the shard.
	var here byte
	at := uintptr(unsafe.Pointer(&here))
	s.counts[(at>>11^at>>15)&s.mask*s.stride+uintptr(cell)].Add(n)
}

// Len returns the number of counters.
func (s *Set) Len() int { return s.cells }

// Get returns a counter.
func (s *Set) Get(cell int) (n uint64) {
	for i := uintptr(cell); i < uintptr(len(s.counts)); i += s.stride {
		n += s.counts[i].Load()
	}
	return n
}

// Counts returns all counters of a set of Cells counters.
func (s *Set) Counts() (c Counts) {
	for i := range c {
		c[i] = s.Get(i)
	}
	return c
}
