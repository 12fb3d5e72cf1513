package selection

import "sync/atomic"

const (
	// farFleet is from how many nodes on a fleet is drawn ahead from: what a processor's
	// own cache holds is not worth it.
	farFleet = 16_384
	// aheadLists is of how many lists a source knows what it has drawn, at 32 bytes each.
	aheadLists = 1024
)

// ahead is what a source has drawn before it is asked. The lists of a large fleet and
// the figures of its nodes are far from the processor, and a choice would wait for the
// one and then for the other. So each choice takes nodes whose figures were sent for by
// the one before it, sends for the figures of the next two, whose places in the list
// were sent for as well, and draws the places after those. A draw is as independent of
// all others as if it were made when it is used.
//
// It keeps no list alive, and two nodes of each that may have left the fleet.
type ahead [aheadLists]drawn

type drawn struct {
	list uint64 // its number; 0: nothing is drawn
	a, b *Node
	word uint64 // of the two after a and b
}

// lists counts the lists that were ever drawn ahead from. They have numbers, since a
// list may have the address of one that is gone.
var lists atomic.Uint64

func newListNumber() uint64 { return lists.Add(1) }

// two draws two nodes of the list of this number, which is 0 if it is not worth to be
// drawn ahead from.
func (s *Source) two(nodes []*Node, list uint64) (a, b *Node) {
	if list == 0 || !s.drawsAhead {
		return draw(nodes, s.Uint64())
	}
	return s.twoAhead(nodes, list)
}

func (s *Source) twoAhead(nodes []*Node, list uint64) (a, b *Node) {
	if s.ahead == nil {
		s.ahead = new(ahead)
	}
	d := &s.ahead[list%aheadLists]
	if d.list != list {
		d.list, d.word = list, s.Uint64()
		d.a, d.b = draw(nodes, s.Uint64())
	}
	a, b = d.a, d.b
	nextA, nextB := draw(nodes, d.word)
	d.a, d.b, d.word = nextA, nextB, s.Uint64()
	i, j := places(nodes, d.word)
	prefetch(&nodes[i], &nodes[j], nextA, nextB)
	return a, b
}
