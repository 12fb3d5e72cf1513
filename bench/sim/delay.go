package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Fixed is a delay that is always the same.
func Fixed(us float64) Quantiles { return Quantiles{{0, us}, {1, us}} }

// Skewed is a log-normal delay with this median and 99th percentile, cut off at both ends, as points.
func Skewed(p50, p99 float64) Quantiles {
	sigma := math.Log(p99/p50) / normalQuantile(0.99)
	at := []float64{0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999}
	value := func(p float64) float64 { return p50 * math.Exp(sigma*normalQuantile(p)) }
	q := Quantiles{{0, value(at[0])}}
	for _, p := range at {
		q = append(q, Quantile{At: p, US: value(p)})
	}
	return append(q, Quantile{1, value(at[len(at)-1])})
}

func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// value is the delay at a share u, in nanoseconds.
func (q Quantiles) value(u float64) int64 {
	i, _ := slices.BinarySearchFunc(q, u, func(p Quantile, u float64) int {
		if p.At < u {
			return -1
		}
		return 1
	})
	us := q[min(i, len(q)-1)].US
	if i > 0 && i < len(q) {
		a, b := q[i-1], q[i]
		us = a.US + (b.US-a.US)*(u-a.At)/(b.At-a.At)
	}
	return int64(math.Round(us * float64(time.Microsecond)))
}

// fixed reports whether all values are the same.
func (q Quantiles) fixed() bool { return q[0].US == q[len(q)-1].US }

// Mean is the mean of the distribution, in microseconds.
func (q Quantiles) Mean() float64 {
	sum := q[0].At*q[0].US + (1-q[len(q)-1].At)*q[len(q)-1].US
	for i := 1; i < len(q); i++ {
		sum += (q[i].At - q[i-1].At) * (q[i].US + q[i-1].US) / 2
	}
	return sum
}

// leastMemory is the shortest time over which delays of a channel resemble each other.
const leastMemory = time.Millisecond

// channel delays messages and keeps their order. Delays drawn one by one would be longer than their
// distribution says: behind one long delay all that follow would have to wait. Delays of neighbours are thus
// alike, as they are where a late process or a full buffer is what delays: the share is a Gaussian process
// whose memory is longer than the delays.
type channel struct {
	delay  Quantiles
	rnd    *rand.Rand
	memory float64
	state  float64
	sentAt int64 // of the last message
	last   int64 // its arrival
}

func newChannel(delay Quantiles, rnd *rand.Rand) channel {
	return channel{
		delay: delay, rnd: rnd, state: rnd.NormFloat64(),
		memory: max(float64(leastMemory), 10*float64(delay.value(0.99))),
	}
}

// arrival is when a message arrives that was sent at this moment. Moments must not go back.
func (c *channel) arrival(at int64) int64 {
	u := 0.5
	if !c.delay.fixed() {
		kept := math.Exp(-float64(at-c.sentAt) / c.memory)
		c.state = float64(kept*c.state) + float64(math.Sqrt(1-kept*kept)*c.rnd.NormFloat64())
		u = 0.5 * math.Erfc(-c.state/math.Sqrt2)
	}
	c.sentAt = at
	c.last = max(c.last, at+c.delay.value(u))
	return c.last
}

// draw is one delay, of any share.
func (c *channel) draw() int64 {
	if c.delay.fixed() {
		return c.delay.value(0.5)
	}
	return c.delay.value(c.rnd.Float64())
}

// reader reads a stream as internal/dispatch does: the call waits at Redis for an entry, brings all that there
// are, and the next one leaves when it has come back.
type reader struct {
	trip    channel
	readAt  int64 // when the last page was read at Redis, or will be
	arrives int64 // when it is at the replica
	next    int64 // when the next call reaches Redis
}

// arrival is when an entry arrives that is written at this moment. Moments must not go back.
func (r *reader) arrival(at int64) int64 {
	if at > r.readAt {
		r.readAt = max(at, r.next)
		trip := r.trip.draw()
		r.arrives = r.readAt + trip - trip/2
		r.next = r.arrives + r.trip.draw()/2
	}
	return r.arrives
}
