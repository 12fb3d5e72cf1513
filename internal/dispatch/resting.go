package dispatch

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// probeRest is for how long at least the nodes of a class that seem full are taken for
	// full, after some of them were asked and said so. Each submit that a full fleet turns
	// away would else have Redis look at as many nodes as a call can name: Redis would be
	// busy with that instead of the completions that free the slots. The slower it answers,
	// the longer they rest: as long as the call took.
	probeRest = 5 * time.Millisecond
	// probeAway is for how long at most they rest while they are being asked.
	probeAway = 100 * time.Millisecond
)

// resting remembers classes until then, each in the place where its hash puts it: one
// that is displaced is asked for once more. The zero value is empty. It is safe for
// concurrent use.
type resting [256]atomic.Pointer[restingClass]

type restingClass struct {
	class *selection.Class
	until time.Time
	asked time.Time // when the call under way began, zero if none is
}

var restingSeed = maphash.MakeSeed()

func (r *resting) place(c *selection.Class) *atomic.Pointer[restingClass] {
	return &r[maphash.Comparable(restingSeed, c)%uint64(len(r))]
}

// ask says that some nodes of the class are being asked.
func (r *resting) ask(c *selection.Class, now time.Time) {
	r.place(c).Store(&restingClass{class: c, until: now.Add(probeAway), asked: now})
}

// begin says that those that were asked are full.
func (r *resting) begin(c *selection.Class, now time.Time) {
	rest := probeRest
	if known := r.place(c).Load(); known != nil && known.class == c && !known.asked.IsZero() {
		rest = max(rest, now.Sub(known.asked))
	}
	r.place(c).Store(&restingClass{class: c, until: now.Add(rest)})
}

// end says that one of those that were asked had room: others may, too.
func (r *resting) end(c *selection.Class) {
	place := r.place(c)
	if known := place.Load(); known != nil && known.class == c {
		place.CompareAndSwap(known, nil)
	}
}

func (r *resting) has(c *selection.Class, now time.Time) bool {
	known := r.place(c).Load()
	return known != nil && known.class == c && now.Before(known.until)
}
