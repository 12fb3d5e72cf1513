package selection

import (
	"fmt"
	"math"
	"sync/atomic"
)

// unseen is the seenAt of a node that was never heard from. It is not 0, because 0 is a moment on a
// monotonic clock that starts with the process.
const unseen = math.MinInt64

// Node is a candidate: the node's profile and its live figures. The cache corrects the figures, and
// every class that lists the node shares them. A Node is safe for concurrent use and takes no lock.
//
// All figures are hints. The reservation in Redis checks them again: a wrong figure here costs a
// refusal, never an over-commitment.
type Node struct {
	id   string
	cell int
	// slots holds used in its upper half and pending in its lower half, so that a confirmed
	// reservation moves from pending to used in one atomic step. With two words, a reader in
	// between would count the reservation twice, or miss it and send the next job to a full node.
	//
	// Invariant: pending is the sum of the slots taken and not yet released or confirmed. A change
	// of used never changes it.
	slots    atomic.Uint64
	seenAt   atomic.Int64
	max      atomic.Int32
	draining atomic.Bool
	// rest holds the end of the quarantine. Its lowest byte counts the refusals. See Refused.
	rest    atomic.Int64
	profile atomic.Pointer[Profile]
}

// NewNode makes a node of a cell with nothing used or pending, online and never heard from. It does
// not qualify until [Node.Seen] is called.
func NewNode(p *Profile, cell int) *Node {
	n := &Node{id: p.node.ID, cell: cell}
	n.seenAt.Store(unseen)
	n.rest.Store(rested)
	n.SetProfile(p)
	return n
}

// SetProfile replaces the profile, which must be of the same node. It does not touch the figures,
// so reservations under way are neither lost nor released twice. The caller builds the classes
// again that list the node.
func (n *Node) SetProfile(p *Profile) {
	n.profile.Store(p)
	n.max.Store(int32(p.node.MaxConcurrency))
}

// ID returns the node's id.
func (n *Node) ID() string { return n.id }

// Cell returns the index of the node's cell.
func (n *Node) Cell() int { return n.cell }

// Max returns the node's max_concurrency.
func (n *Node) Max() int { return int(n.max.Load()) }

// Profile returns the node's profile.
func (n *Node) Profile() *Profile { return n.profile.Load() }

// Load returns the slots in use as last heard, and the slots that this replica has taken without an
// answer yet, both at one instant. The node's load is their sum divided by its max_concurrency.
func (n *Node) Load() (used, pending int) { return split(n.slots.Load()) }

// TryTake adds slots (at least 1) to pending, or returns false if fewer are free. Exactly one
// [Node.Release] or [Node.Confirm] of the same slots must follow every success. The
// compare-and-swap decides: if two callers saw the last free slot, only one finds the word
// unchanged. The other one looks again.
func (n *Node) TryTake(slots int) bool {
	for {
		word := n.slots.Load()
		used, pending := split(word)
		if slots > n.Max()-used-pending {
			return false
		}
		if n.slots.CompareAndSwap(word, join(used, pending+slots)) {
			return true
		}
	}
}

// Release subtracts slots from pending: the caller gave the reservation up, or used will show its
// outcome by other means. It panics if more is released than was taken.
func (n *Node) Release(slots int) {
	n.update(func(used, pending int) (int, int) { return used, pending - slots })
}

// Confirm subtracts slots from pending and sets used, in one step. It is for a reservation whose
// answer, even a refusal, states the slots in use. It panics if more is confirmed than was taken.
func (n *Node) Confirm(slots, used int) {
	n.update(func(_, pending int) (int, int) { return used, pending - slots })
}

// SetUsed sets the slots in use and leaves pending alone. The last call wins: a caller that knows
// that its figure is old must drop it.
func (n *Node) SetUsed(used int) {
	n.update(func(_, pending int) (int, int) { return used, pending })
}

// Seen records a sign of life at this moment, in nanoseconds by the monotonic clock of [Query.Now];
// it may be negative. A moment before the latest known one changes nothing, so events may arrive in
// any order.
func (n *Node) Seen(at int64) {
	for {
		last := n.seenAt.Load()
		if at <= last || n.seenAt.CompareAndSwap(last, at) {
			return
		}
	}
}

// MarkSilent makes the node silent until the next Seen, because Redis answered that it is.
func (n *Node) MarkSilent() { n.seenAt.Store(unseen) }

// SeenAt returns the latest moment given to Seen; ok is false if there is none.
func (n *Node) SeenAt() (at int64, ok bool) {
	at = n.seenAt.Load()
	return at, at != unseen
}

// SetDraining sets whether the node refuses new jobs.
func (n *Node) SetDraining(draining bool) { n.draining.Store(draining) }

// Draining returns what was last given to SetDraining.
func (n *Node) Draining() bool { return n.draining.Load() }

// update replaces both figures by one compare-and-swap, so that no concurrent change of either is
// lost.
func (n *Node) update(next func(used, pending int) (int, int)) {
	for {
		word := n.slots.Load()
		used, pending := next(split(word))
		if pending < 0 {
			panic(fmt.Sprintf("selection: node %s: %d more slots released than taken", n.ID(), -pending))
		}
		if n.slots.CompareAndSwap(word, join(used, pending)) {
			return
		}
	}
}

func split(word uint64) (used, pending int) {
	return int(word >> 32), int(word & math.MaxUint32)
}

// join clamps used, which comes from outside. Pending never exceeds a node's max_concurrency,
// because only TryTake raises it.
func join(used, pending int) uint64 {
	return uint64(min(max(used, 0), math.MaxInt32))<<32 | uint64(pending)
}
