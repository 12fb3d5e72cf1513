package dispatch

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

const (
	// probeRest is for how long at least a class's nodes of a cell that seem full are taken for
	// full, after some of them were asked and said so. Each submit that a full fleet turns away
	// would else have Redis look at as many nodes as a call can name: Redis would be busy with
	// that instead of the completions that free the slots. The slower it answers, the longer
	// they rest: as long as the call took.
	probeRest = 5 * time.Millisecond
	// probeAway is the most of that, and for how long at most others wait for the answer.
	probeRestMost = 100 * time.Millisecond
)

// resting remembers the nodes of a cell that are full, those of each class in the place where
// the hash of its id puts them: who is displaced is asked once more. The zero value is empty. It is
// safe for concurrent use.
type fullNodes [256]atomic.Pointer[classFull]

// restingNodes is immutable.
type classFull struct {
	class string    // its id
	full  time.Time // until then they are taken for full
	said  time.Time // until then by jobs of several slots
	asked time.Time // when a job of one slot began to ask them, zero if none does
}

// question is what a call asks of such nodes. asked is zero for that of a job which does not keep others
// from asking. The zero value is none.
type probe struct {
	class string
	asked time.Time
}

var fullSeed = maphash.MakeSeed()

func (r *fullNodes) place(class string) *atomic.Pointer[classFull] {
	return &r[maphash.String(fullSeed, class)%uint64(len(r))]
}

// known is what is known of the nodes, nothing if another class has their place.
func factsOf(at *classFull, class string) classFull {
	if at == nil || at.class != class {
		return classFull{class: class}
	}
	return *at
}

// has reports whether the nodes are taken for full by a job of several slots: only if they have just said so,
// since how many slots they have beyond the first they do not tell.
func (r *fullNodes) has(class string, now time.Time) bool {
	return now.Before(factsOf(r.place(class).Load(), class).said)
}

// ask reports whether a job of one slot is to ask the nodes: if they are not taken for full
// and no other such job is asking. What comes of it is then to be told.
func (r *fullNodes) ask(class string, now time.Time) bool {
	place := r.place(class)
	for {
		at := place.Load()
		next := factsOf(at, class)
		if now.Before(next.full) || !next.asked.IsZero() && now.Before(next.asked.Add(probeRestMost)) {
			return false
		}
		next.asked = now
		if place.CompareAndSwap(at, &next) {
			return true
		}
	}
}

// told takes in what came of a question: with full, that the nodes had no room.
func (r *fullNodes) told(q probe, now time.Time, full bool) {
	place := r.place(q.class)
	for {
		at := place.Load()
		before := factsOf(at, q.class)
		next := before
		if next.asked.Equal(q.asked) {
			next.asked = time.Time{}
		}
		if full {
			next.said = later(next.said, now.Add(probeRest))
			if !q.asked.IsZero() { // no room for several slots is none of one slot's business
				rest := min(max(probeRest, now.Sub(q.asked)), probeRestMost)
				next.full = later(next.full, now.Add(rest))
			}
		}
		if next == before || place.CompareAndSwap(at, &next) {
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
