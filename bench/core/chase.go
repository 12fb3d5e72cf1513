package main

import "math/rand/v2"

// chaseLine is a cache line that says which one comes next.
type chaseLine struct {
	next *chaseLine
	_    [7]uint64
}

// newChase makes blocks of reads that wait for each other, in an order without a pattern that comes to each of so many
// cache lines: what the machine takes for a read that nothing foretold. No choice from as many nodes can do without
// two of them, the place in the list and then the node.
func newChase(lines int) func() {
	all := make([]chaseLine, lines)
	order := rand.New(rand.NewPCG(1, 2)).Perm(lines)
	for i, at := range order {
		all[at].next = &all[order[(i+1)%lines]]
	}
	at := &all[0]
	return func() {
		for range blockSize {
			at = at.next
		}
	}
}
