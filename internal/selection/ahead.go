package selection

import "sync/atomic"

const (
	// farFleet is from how many nodes on a fleet is drawn ahead from: what a processor's
	// own cache holds is not worth it.
	farFleet = 16_384
	// aheadPlaces is of how many lists a source knows what it has drawn, at 64 bytes each.
	aheadPlaces = 1024
	// aheadPairs are drawn ahead from a list: as many as a choice takes that wants two
	// candidates, so that it does not wait for what it has just sent for.
	aheadPairs = 2
)

// ahead is what a source has drawn before it is asked. The lists of a large fleet and
// the figures of its nodes are far from the processor, and a choice would wait for the
// one and then for the other. So each draw takes two nodes whose figures were sent for
// earlier, sends for the figures of two others, whose places in the list were sent for
// as well, and draws the places after those. A draw is as independent of all others as
// if it were made when it is used.
//
// It keeps no list alive, but four nodes of each, which may have left the fleet, with
// their profiles; until the source goes.
type ahead [aheadPlaces]drawn

// drawn is one cache line.
type drawn struct {
	list  uint64 // number of the list, 0: nothing is drawn
	turn  uint64
	pairs [aheadPairs]drawnPair
}

type drawnPair struct {
	a, b *Node
	word uint64 // of the two after a and b
}

// lists counts the lists that were ever drawn ahead from. They have numbers, since a
// list may have the address of one that is gone.
var lists atomic.Uint64

// places deals places out to classes, so that the few thousand that there are at most
// seldom share one. A class keeps its place when its lists are built again.
var places atomic.Uint64

// How far the places of a class's lists are apart.
const (
	ownApart  = aheadPlaces / 2 // of the share
	cellApart = 97              // of the next cell
)

func (s *Source) twoAhead(nodes []*Node, list, place uint64) (a, b *Node) {
	if s.ahead == nil {
		s.ahead = new(ahead)
	}
	d := &s.ahead[place%aheadPlaces]
	if d.list != list {
		d.list = list
		for i := range d.pairs {
			p := &d.pairs[i]
			p.a, p.b = draw(nodes, s.Uint64())
			p.word = s.Uint64()
		}
	}
	d.turn++
	p := &d.pairs[d.turn%aheadPairs]
	a, b = p.a, p.b
	nextA, nextB := draw(nodes, p.word)
	p.a, p.b, p.word = nextA, nextB, s.Uint64()
	i, j := spots(nodes, p.word)
	prefetch(&nodes[i], &nodes[j], nextA, nextB)
	return a, b
}
