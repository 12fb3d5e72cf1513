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

// leastMemory is the shortest time over which delays resemble each other.
const leastMemory = time.Millisecond

// pace is how late a replica is as time goes on, as a share of what it can be. What delays all that it is told is mostly
// the same: a processor that is busy with others, or Redis; of real replicas the ranks of delays of events and of replies
// at one moment correlate by 0.66 to 0.87, here by 1. Those of several replicas are independent here, which they are not
// where they share processors. It is a Gaussian process, made of independent values a memory apart
// and of their mixtures in between, of which each has the same variance. Any moment can be asked for, in any order.
type pace struct {
	seed   uint64
	memory int64
	// from and to are the values at the ends of the span asked for last.
	span     int64
	from, to float64
}

// newPace is the pace of a replica with these delays. Its memory is longer than they are: or else messages, which keep
// their order, would wait longer behind each other than their delays say.
func newPace(seed uint64, delays ...Quantiles) *pace {
	p := &pace{seed: seed, memory: int64(leastMemory), span: math.MinInt64}
	for _, d := range delays {
		if len(d) > 0 {
			p.memory = max(p.memory, 10*d.value(0.99))
		}
	}
	return p
}

// share is the share at a moment, which is not before the run's begin.
func (p *pace) share(at int64) float64 {
	if span := at / p.memory; span != p.span {
		p.span, p.from, p.to = span, p.normal(span), p.normal(span+1)
	}
	sin, cos := math.Sincos(math.Pi / 2 * float64(at%p.memory) / float64(p.memory))
	return 0.5 * math.Erfc(-(float64(cos*p.from)+float64(sin*p.to))/math.Sqrt2)
}

func (p *pace) normal(span int64) float64 {
	var bits rand.PCG
	bits.Seed(p.seed, uint64(span))
	return normalQuantile((float64(bits.Uint64()>>11) + 0.5) / (1 << 53))
}

// channel delays messages and keeps their order. Delays drawn one by one would be longer than their
// distribution says: behind one long delay all that follow would have to wait. So they are those of the replica's pace.
type channel struct {
	delay Quantiles
	rnd   *rand.Rand
	pace  *pace
	last  int64 // the arrival of the last message
}

// arrival is when a message arrives that was sent at this moment. Moments must not go back.
func (c *channel) arrival(at int64) int64 {
	u := 0.5
	if !c.delay.fixed() {
		u = c.pace.share(at)
	}
	c.last = max(c.last, at+c.delay.value(u))
	return c.last
}

// draw is one delay, of any share.
func (c *channel) draw() int64 { return trips{c.delay, c.rnd}.draw() }

// trips are the times that calls take, each drawn by itself.
type trips struct {
	took Quantiles
	rnd  *rand.Rand
}

func (t trips) draw() int64 {
	if t.took.fixed() {
		return t.took.value(0.5)
	}
	return t.took.value(t.rnd.Float64())
}

// reader reads a stream as internal/dispatch does: the call waits at Redis for an entry, brings all that there
// are, and the next one leaves when it has come back.
type reader struct {
	trip    trips
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
