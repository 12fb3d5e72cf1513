package dispatch

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// probeRest is for how long at least a class's nodes of a cell that seem full are taken for
	// full, after some of them were asked and said so. Each submit that a full fleet turns away
	// would else have Redis look at as many nodes as a call can name: Redis would be busy with
	// that instead of the completions that free the slots. The slower it answers, the longer
	// they rest: as long as the call took.
	probeRest = 5 * time.Millisecond
	// probeAway is the most of that, and for how long at most others wait for the answer.
	probeAway = 100 * time.Millisecond
)

// resting remembers such nodes until then, those of each class and cell in the place where
// their hash puts them: who is displaced is asked once more. The zero value is empty. It is
// safe for concurrent use.
type resting [256]atomic.Pointer[restingNodes]

// restingNodes is immutable.
type restingNodes struct {
	restingKey
	full  time.Time // until then they are taken for full
	asked time.Time // when a job of one slot began to ask them, zero if none does
}

type restingKey struct {
	class *selection.Class
	cell  int
}

// question is what a call asks of such nodes. asked is zero for that of a job which does not keep others
// from asking.
type question struct {
	restingKey
	asked time.Time
}

var restingSeed = maphash.MakeSeed()

func (r *resting) place(key restingKey) *atomic.Pointer[restingNodes] {
	return &r[maphash.Comparable(restingSeed, key)%uint64(len(r))]
}

// known is what is known of the nodes, nothing if another class or cell has their place.
func known(at *restingNodes, key restingKey) restingNodes {
	if at == nil || at.restingKey != key {
		return restingNodes{restingKey: key}
	}
	return *at
}

// has reports whether the nodes are taken for full.
func (r *resting) has(key restingKey, now time.Time) bool {
	return now.Before(known(r.place(key).Load(), key).full)
}

// ask reports whether a job of one slot is to ask the nodes: if they are not taken for full
// and no other such job is asking. What comes of it is then to be told.
func (r *resting) ask(key restingKey, now time.Time) bool {
	place := r.place(key)
	at := place.Load()
	next := known(at, key)
	if now.Before(next.full) || !next.asked.IsZero() && now.Before(next.asked.Add(probeAway)) {
		return false
	}
	next.asked = now
	return place.CompareAndSwap(at, &next)
}

// told takes in what came of a question: with full, that the nodes had no room.
func (r *resting) told(q question, now time.Time, full bool) {
	place := r.place(q.restingKey)
	for {
		at := place.Load()
		before := known(at, q.restingKey)
		next := before
		if next.asked.Equal(q.asked) {
			next.asked = time.Time{}
		}
		if full {
			rest := probeRest
			if !q.asked.IsZero() {
				rest = min(max(rest, now.Sub(q.asked)), probeAway)
			}
			if until := now.Add(rest); until.After(next.full) {
				next.full = until
			}
		}
		if next == before || place.CompareAndSwap(at, &next) {
			return
		}
	}
}
