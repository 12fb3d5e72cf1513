package selection

import (
	"math"
	"time"
)

// Quarantine: a node that refuses what it seemed to be free for, again and again,
// is left alone for a while, so that it does not swallow every first try.
const (
	// QuarantineAfter is how many refusals in a row begin it.
	QuarantineAfter = 3
	// QuarantineFirst is how long the first one is; each further one in a row is
	// twice as long as the last, up to QuarantineLongest.
	QuarantineFirst   = 250 * time.Millisecond
	QuarantineLongest = 10 * time.Second
)

// The lowest byte of Node.rest counts refusals, the others are the end of the
// quarantine in nanoseconds, which is so rounded to 256 of them. In one word a
// success and a refusal that race cannot leave an end without a count.
const (
	refusalMask = math.MaxUint8
	// rested is the word of a node without any refusal: its end is before any moment.
	rested = math.MinInt64
)

// Refused says that the node refused a reservation at this moment, in nanoseconds
// on the clock of [Query.Now], although it was not full. The third refusal without
// a success between them begins the quarantine. One during a quarantine changes
// nothing: those were sent before it, or as a last resort.
func (n *Node) Refused(now int64) {
	for {
		word := n.rare.rest.Load()
		if word > now {
			return
		}
		refusals := min(word&refusalMask+1, refusalMask)
		next := rested | refusals
		if refusals >= QuarantineAfter {
			next = (now+int64(quarantine(refusals)))&^refusalMask | refusals
		}
		// Of refusals that race one finds the word unchanged, the others see its quarantine.
		if n.rare.rest.CompareAndSwap(word, next) {
			n.state.set(stateRefused, true)
			return
		}
	}
}

func quarantine(refusals int64) time.Duration {
	doublings := min(refusals-QuarantineAfter, 6) // past the longest by then
	return min(QuarantineFirst<<doublings, QuarantineLongest)
}

// Accepted says that the node accepted a reservation. It ends the quarantine and
// the count of refusals.
func (n *Node) Accepted() {
	if !n.state.has(stateRefused) { // most have none: that saves a line from being read
		return
	}
	n.rare.rest.Store(rested)
	n.state.set(stateRefused, false)
	if n.rare.rest.Load() != rested { // a refusal in between, whose flag this took away
		n.state.set(stateRefused, true)
	}
}

// rests reports whether the node is in quarantine.
func (n *Node) rests(now int64) bool {
	return n.state.has(stateRefused) && n.rare.rest.Load() > now
}

// refusals is how many there were in a row, at most 255.
func (n *Node) refusals() int { return int(n.rare.rest.Load() & refusalMask) }
