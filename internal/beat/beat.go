// Package beat lets the loops of a process wake at the same instants.
//
// Each instant at which an idle process wakes costs thread switches, however many of its goroutines
// run: the thread that sleeps in the kernel, the runtime's monitor, and the reader of
// Redis' answers. Loops that look at Redis now and then lose nothing if they wait for each other,
// and their calls share a write to Redis.
package beat

import (
	"math/rand/v2"
	"time"
)

const (
	// Period is the time between two beats. It varies by a quarter.
	Period = 250 * time.Millisecond
	// spread is how far a beat can be from its place in a regular row, either way.
	spread = Period / 8
)

// own makes the beats of each process differ from every other's: replicas that act at the same time
// do the same work twice, and load Redis at once.
var own = beats(rand.Uint64())

// beats is a row of instants. The n-th of them depends on nothing but n.
type beats uint64

// Pause returns about d: the time until the beat that is next to d from now. It differs from d by
// at most two thirds of Period. A d below Period*3/4 is returned as it is.
func Pause(d time.Duration) time.Duration { return own.pause(time.Now(), d) }

func (b beats) pause(now time.Time, d time.Duration) time.Duration {
	if d < Period*3/4 {
		return d
	}
	since := time.Duration(now.UnixNano()) + b.phase()
	n := (since + d + Period/2) / Period
	return n*Period + b.offset(n) - since
}

// phase is when a regular row begins.
func (b beats) phase() time.Duration { return time.Duration(uint64(b) % uint64(Period)) }

// offset is how much later than in a regular row the n-th beat is. It varies, so that two processes
// whose rows happen to begin together do not stay together.
func (b beats) offset(n time.Duration) time.Duration {
	return time.Duration(rand.NewPCG(uint64(b), uint64(n)).Uint64()%uint64(2*spread)) - spread
}
