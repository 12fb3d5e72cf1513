package dispatch

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// probeRest is for how long the nodes of a class that seem full are taken for full, after
// some of them were asked and said so. Each submit that a full fleet turns away would
// else have Redis look at as many nodes as a call can name: Redis would be busy with
// that instead of the completions that free the slots.
const probeRest = 5 * time.Millisecond

// resting remembers classes until then, each in the place where its hash puts it: one
// that is displaced is asked for once more. The zero value is empty. It is safe for
// concurrent use.
type resting [256]atomic.Pointer[restingClass]

type restingClass struct {
	class *selection.Class
	until time.Time
}

var restingSeed = maphash.MakeSeed()

func (r *resting) place(c *selection.Class) *atomic.Pointer[restingClass] {
	return &r[maphash.Comparable(restingSeed, c)%uint64(len(r))]
}

func (r *resting) begin(c *selection.Class, now time.Time) {
	r.place(c).Store(&restingClass{class: c, until: now.Add(probeRest)})
}

func (r *resting) has(c *selection.Class, now time.Time) bool {
	known := r.place(c).Load()
	return known != nil && known.class == c && now.Before(known.until)
}
