package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// quantiles are points of a distribution in the order of their shares. Between two points it goes
// straight.
type quantiles []quantile

// quantile: a share at (0 to 1) of the values are at most us microseconds.
type quantile struct{ at, us float64 }

// fixed is a delay that is always the same.
func fixed(us float64) quantiles { return quantiles{{0, us}, {1, us}} }

// skewed is a log-normal delay with this median and 99th percentile, cut off at both ends, as
// points.
func skewed(p50, p99 float64) quantiles {
	sigma := math.Log(p99/p50) / normalQuantile(0.99)
	at := []float64{0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999}
	value := func(p float64) float64 { return p50 * math.Exp(sigma*normalQuantile(p)) }
	q := quantiles{{0, value(at[0])}}
	for _, p := range at {
		q = append(q, quantile{p, value(p)})
	}
	return append(q, quantile{1, value(at[len(at)-1])})
}

func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

func (q quantiles) validate() error {
	for i, p := range q {
		if !(p.at >= 0 && p.at <= 1) || !(p.us >= 0) || math.IsInf(p.us, 0) || i > 0 && (p.at <= q[i-1].at || p.us < q[i-1].us) {
			return fmt.Errorf("delays %v: point %d is no quantile after those before", q, i)
		}
	}
	return nil
}

// value is the delay at a share u, in nanoseconds.
func (q quantiles) value(u float64) int64 {
	i, _ := slices.BinarySearchFunc(q, u, func(p quantile, u float64) int {
		if p.at < u {
			return -1
		}
		return 1
	})
	us := q[min(i, len(q)-1)].us
	if i > 0 && i < len(q) {
		a, b := q[i-1], q[i]
		us = a.us + (b.us-a.us)*(u-a.at)/(b.at-a.at)
	}
	return int64(math.Round(us * float64(time.Microsecond)))
}

// isFixed reports whether all values are the same.
func (q quantiles) isFixed() bool { return q[0].us == q[len(q)-1].us }

// draw is one value, of any share.
func (q quantiles) draw(rnd *rand.Rand) int64 {
	if q.isFixed() {
		return q.value(0.5)
	}
	return q.value(rnd.Float64())
}

// leastMemory is the shortest time over which delays resemble each other.
const leastMemory = time.Millisecond

// pace is how late a replica is as time goes on, as a share of how late it can be. What delays all
// that reaches it is mostly the same: a processor that is busy with others, or Redis. In real
// replicas the ranks of delays of events and of replies at one moment correlate by 0.66 to 0.87,
// here by 1. Several replicas are independent here; where they share processors they are not. It is
// a Gaussian process, made of independent values a memory apart and of their mixtures in between,
// each of which has the same variance. Any moment can be asked for, in any order.
type pace struct {
	seed   uint64
	memory int64
	// from and to are the values at the ends of the span asked for last.
	span     int64
	from, to float64
}

// newPace is the pace of a replica with these delays. Its memory is longer than they are: else
// messages, which keep their order, would wait longer behind each other than their delays say.
func newPace(seed uint64, delays ...quantiles) *pace {
	p := &pace{seed: seed, memory: int64(leastMemory), span: math.MinInt64}
	for _, d := range delays {
		p.memory = max(p.memory, 10*d.value(0.99))
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
// distribution says: behind one long delay all that follow would have to wait. So they are those of
// the replica's pace.
type channel struct {
	delay quantiles
	pace  *pace
	last  int64 // the arrival of the last message
}

// arrival is when a message arrives that was sent at this moment. Moments must not go back.
func (c *channel) arrival(at int64) int64 {
	u := 0.5
	if !c.delay.isFixed() {
		u = c.pace.share(at)
	}
	c.last = max(c.last, at+c.delay.value(u))
	return c.last
}
