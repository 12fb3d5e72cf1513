package selection

import (
	"math"
	"time"
)

// Quarantine: a node that refuses several jobs in a row although it seemed free is left out for a
// while, so that it does not get every first try.
const (
	// QuarantineAfter is the number of refusals in a row that begins a quarantine.
	QuarantineAfter = 3
	// QuarantineFirst is the length of the first quarantine; each further one in a row is twice as
	// long as the last, up to QuarantineLongest.
	QuarantineFirst   = 250 * time.Millisecond
	QuarantineLongest = 10 * time.Second
)

// The lowest byte of Node.rest counts refusals. The other bytes are the end of the quarantine in
// nanoseconds, which is thereby rounded to a multiple of 256. With one word, a success and a
// refusal that race cannot leave an end without a count.
const (
	refusalMask = math.MaxUint8
	// rested is the word of a node without any refusal: its end is before every moment.
	rested = math.MinInt64
)

// Refused records that the node refused a reservation although it was not full, at this moment in
// nanoseconds by the clock of [Query.Now]. The third refusal without a success in between begins
// the quarantine. A refusal during a quarantine changes nothing: its reservation was sent before
// the quarantine, or as a last resort.
func (n *Node) Refused(now int64) {
	for {
		word := n.rest.Load()
		if word > now {
			return
		}
		refusals := min(word&refusalMask+1, refusalMask)
		next := rested | refusals
		if refusals >= QuarantineAfter {
			next = (now+int64(quarantine(refusals)))&^refusalMask | refusals
		}
		// Among racing refusals, one finds the word unchanged, and the others see its quarantine.
		if n.rest.CompareAndSwap(word, next) {
			return
		}
	}
}

func quarantine(refusals int64) time.Duration {
	doublings := min(refusals-QuarantineAfter, 6) // beyond that it is the longest anyway
	return min(QuarantineFirst<<doublings, QuarantineLongest)
}

// Accepted records that the node accepted a reservation. It ends the quarantine and the count of
// refusals.
func (n *Node) Accepted() { n.rest.Store(rested) }

// rests reports whether the node is in quarantine.
func (n *Node) rests(now int64) bool { return n.rest.Load() > now }

// refusals returns the number of refusals in a row, at most 255.
func (n *Node) refusals() int { return int(n.rest.Load() & refusalMask) }
