package selection

import (
	"fmt"
	"math"
	"sync/atomic"
)

// unseen is the seenAt of a node of which nothing was ever heard. It is not 0,
// which is a moment on a monotonic clock that starts with the process.
const unseen = math.MinInt64

// Node is a candidate: the node's profile and its live figures, shared by the
// cache, which corrects them, and by every class that lists it. It is safe for
// concurrent use and takes no lock.
//
// All figures are hints. The reservation in Redis checks them again; what a
// reader here gets wrong costs a refusal, never an over-commitment.
//
// What a choice looks at is half a cache line, and all nodes' halves lie beside each
// other: in a large fleet a choice takes as long as its cache misses.
type Node struct {
	// slots holds used in its upper half and pending in its lower one, so that a
	// confirmed reservation moves from pending to used in one atomic step. In two
	// words a reader in between would count it twice, or not at all and send the
	// next job after it.
	//
	// Invariant: pending is the sum of the slots taken and not yet released or
	// confirmed, whatever happens to used.
	slots  atomic.Uint64
	seenAt atomic.Int64
	state  state
	rare   *rare
}

// rare is what a choice does not look at.
type rare struct {
	id      string
	profile atomic.Pointer[Profile]
	// rest is when the quarantine ends; its lowest byte counts the refusals. See Refused.
	rest atomic.Int64
	// As large as a Node, it would be allocated from between them.
	_ [2]uint64
}

// NewNode makes a node of a cell with nothing used or pending, online, of which
// nothing has been heard: it does not qualify until [Node.Seen] is called.
func NewNode(p *Profile, cell int) *Node {
	n := &Node{rare: &rare{id: p.node.ID}}
	n.state.word.Store(uint64(cell) << stateCell)
	n.seenAt.Store(unseen)
	n.rare.rest.Store(rested)
	n.SetProfile(p)
	return n
}

// SetProfile replaces the profile, which must be of the same node, and leaves the
// figures alone: reservations under way meanwhile are neither lost nor released
// twice. Classes that list the node are to be built again.
func (n *Node) SetProfile(p *Profile) {
	n.rare.profile.Store(p)
	n.state.setMax(p.node.MaxConcurrency)
}

// ID is the node's id.
func (n *Node) ID() string { return n.rare.id }

// Cell is the index of the node's cell.
func (n *Node) Cell() int { return n.state.cell() }

// Max is the node's max_concurrency.
func (n *Node) Max() int { return n.state.max() }

// Profile is the node's profile.
func (n *Node) Profile() *Profile { return n.rare.profile.Load() }

// Load returns the slots in use as last heard of and those that this replica has
// taken without an answer yet, as they were at one instant. The node's load is
// their sum over its max_concurrency.
func (n *Node) Load() (used, pending int) { return split(n.slots.Load()) }

// TryTake adds slots (at least 1) to pending, or returns false if so many are not
// free. Every success must be followed by exactly one [Node.Release] or
// [Node.Confirm] of the same slots. The step that decides is the compare-and-swap:
// of two callers that saw the last free slot only one finds the word unchanged,
// and the other looks again.
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

// Release takes slots off pending: the reservation was given up, or its fate will
// show in used by other means. It panics if more is released than was taken.
func (n *Node) Release(slots int) {
	n.update(func(used, pending int) (int, int) { return used, pending - slots })
}

// Confirm takes slots off pending and sets used, in one step: the reservation was
// answered, and the answer said how many slots are in use now. That holds for a
// refusal too. It panics if more is confirmed than was taken.
func (n *Node) Confirm(slots, used int) {
	n.update(func(_, pending int) (int, int) { return used, pending - slots })
}

// SetUsed sets the slots in use and leaves pending alone. The last call wins: a
// caller that can tell an old figure from a new one must drop the old one itself.
func (n *Node) SetUsed(used int) {
	n.update(func(_, pending int) (int, int) { return used, pending })
}

// Seen says that the node gave a sign of life at this moment, in nanoseconds on
// the monotonic clock of [Query.Now]; it may be negative. An earlier moment than
// the latest known one changes nothing, so events may arrive in any order.
func (n *Node) Seen(at int64) {
	for {
		last := n.seenAt.Load()
		if at <= last || n.seenAt.CompareAndSwap(last, at) {
			return
		}
	}
}

// MarkSilent makes the node silent until the next Seen: somebody who knows better
// has found it so.
func (n *Node) MarkSilent() { n.seenAt.Store(unseen) }

// SeenAt is the latest moment given to Seen; ok is false if there is none.
func (n *Node) SeenAt() (at int64, ok bool) {
	at = n.seenAt.Load()
	return at, at != unseen
}

// SetDraining says whether the node takes new jobs.
func (n *Node) SetDraining(draining bool) { n.state.set(stateDraining, draining) }

// Draining reports what was last given to SetDraining.
func (n *Node) Draining() bool { return n.state.has(stateDraining) }

// update replaces both figures by one compare-and-swap, so that no concurrent
// change of either is lost.
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

// join clamps used, which comes from outside. Pending never exceeds a node's
// max_concurrency, because TryTake is the only way to raise it.
func join(used, pending int) uint64 {
	return uint64(min(max(used, 0), math.MaxInt32))<<32 | uint64(pending)
}
