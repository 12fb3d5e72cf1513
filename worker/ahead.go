package worker

import (
	"math"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// aheadWait is how long a job may be expected to wait on the node for another's end, at
	// most, for any to be asked for ahead: longer, and another node may be free before.
	aheadWait = 50 * time.Millisecond
	// aheadPatience is how long one does wait, before it is handed back.
	aheadPatience = 5 * aheadWait
	// aheadGain is the share of a slot's time that a round trip must take to be worth it.
	aheadGain = 0.005
	// aheadMemory is for how long attempts count as ahead after the last were asked for.
	aheadMemory = time.Second
)

// ahead decides how many jobs the node asks for beyond its slots. While many wait, a slot is
// otherwise idle from the end of one job until the answer to its report has brought the
// next; with jobs of some milliseconds that is much of the time. Its methods are safe for
// concurrent use.
type ahead struct {
	off bool

	mu sync.Mutex // guards the rest
	// run is about how long a handler takes, rather too much, and trip how long a report.
	run, trip time.Duration
	asked     time.Time
}

// ran notes how long a handler took, or an attempt has waited for one. Long ones
// count at once: jobs of all kinds may be mixed.
func (a *ahead) ran(took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if took > a.run {
		a.run += (took - a.run) / 2
		return
	}
	a.run -= (a.run - took) / 16
}

// answered notes how long a report took that asked for so many slots ahead.
func (a *ahead) answered(took time.Duration, now time.Time, asked int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trip += (min(took, aheadWait) - a.trip) / 16
	if asked > 0 {
		a.asked = now
	}
}

// slots is how many slots beyond those of the node to ask for. Where handlers take longer than one that waits has
// patience there are none: slots that began together end together.
func (a *ahead) slots(of int, now time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.off || of == 0 || a.run <= 0 || a.run > aheadPatience {
		return 0
	}
	gain := float64(a.trip) / float64(a.run)
	if gain < aheadGain {
		return 0
	}
	n := min(int(math.Ceil(gain*float64(of))), cell.MaxAhead*of, int(aheadWait*time.Duration(of)/a.run))
	if n == 0 {
		return 0
	}
	a.asked = now
	return n
}

// patience is how long an attempt waits for slots now, where it is otherwise for longest.
func (a *ahead) patience(now time.Time, longest time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked.IsZero() || now.Sub(a.asked) > aheadMemory {
		return longest
	}
	return min(aheadPatience, longest)
}
