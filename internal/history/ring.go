package history

import "time"

// The sums of a point: counters, ends, then the buckets of each histogram.
const (
	endsAt       = counters
	histogramsAt = endsAt + ends
	sums         = histogramsAt + histograms*buckets
)

// The levels of a point, which keeps the highest of each: gauges, then figures of the replicas.
const (
	replicasAt = gauges + iota // how many replicas run
	memoryAt                   // bytes, of all replicas
	levels
)

// none is the level of a point that has no value.
const none = -1

// void is the number of a point that is not used.
const void = -1

// point holds what is known of one step of a ring.
type point struct {
	// number counts steps since 1970. A point of another round of the ring is void.
	number int64
	// seq is when the point was last ready or changed; see History.Since.
	seq   uint64
	dirty bool // it changed since then
	// covered, seen and parted are for how much of the step, in milliseconds, a replica has reported
	// counters, ends, and ends by state.
	covered, seen, parted float32
	sums                  [sums]float32
	levels                [levels]float32
}

// ring holds the points of the last steps.
type ring struct {
	step   int64 // milliseconds
	points []point
}

func newRing(step, reach time.Duration) *ring {
	r := &ring{step: step.Milliseconds(), points: make([]point, reach/step)}
	for i := range r.points {
		r.points[i].number = void
	}
	return r
}

// at returns the point of a step, which it begins if need be; nil if the ring is past it.
func (r *ring) at(number int64) *point {
	p := &r.points[number%int64(len(r.points))]
	switch {
	case p.number > number:
		return nil
	case p.number < number:
		*p = point{number: number}
		for i := range p.levels {
			p.levels[i] = none
		}
	}
	return p
}

// get returns the point of a step; nil if nothing was ever known of it.
func (r *ring) get(number int64) *point {
	if p := &r.points[number%int64(len(r.points))]; p.number == number {
		return p
	}
	return nil
}

// spread calls f for each step between two times, with the part of the time that falls into it.
func (r *ring) spread(from, to int64, f func(p *point, ms, part float32)) {
	if to <= from {
		return
	}
	oldest := to/r.step - int64(len(r.points))
	for n := max(from/r.step, oldest, 0); n*r.step < to; n++ {
		if p := r.at(n); p != nil {
			ms := float32(min(to, (n+1)*r.step) - max(from, n*r.step))
			f(p, ms, ms/float32(to-from))
			p.dirty = true
		}
	}
}

// raise keeps the highest level of the step at a time.
func (r *ring) raise(at int64, level int, value float32) {
	if p := r.at(at / r.step); p != nil && value > p.levels[level] {
		p.levels[level], p.dirty = value, true
	}
}
