package trace

import (
	"fmt"
	"math"
	"time"
)

// Arrival is a request at the moment of its replay.
type Arrival struct {
	// At is the time since the replay began.
	At      time.Duration
	Request *Request
}

// Arrivals replays a trace without end, faster or slower than it was, so that a given rate is its
// average over each turn. Bursts are kept, in the same proportion to the average. It is not safe
// for concurrent use.
type Arrivals struct {
	requests []Request
	scale    float64 // replayed time over the trace's
	turn     float64 // trace's time of a turn, in nanoseconds
	next     int
	turns    int
}

// NewArrivals replays requests, which it keeps, at rate a second. A trace that ends begins again.
// At this seam the gap is the trace's average gap, so a turn of n requests takes n/(n-1) of the
// time between the first and the last. The error names what of rate or trace cannot be replayed.
func NewArrivals(requests []Request, rate float64) (*Arrivals, error) {
	if !(rate > 0) || math.IsInf(rate, 0) {
		return nil, fmt.Errorf("rate is %v a second, expected more than 0", rate)
	}
	n := float64(len(requests))
	if n < 2 || requests[len(requests)-1].At <= 0 {
		return nil, fmt.Errorf("the trace has %d requests, expected at least two at different times", len(requests))
	}
	turn := float64(requests[len(requests)-1].At) * n / (n - 1)
	return &Arrivals{requests: requests, turn: turn, scale: n / rate * float64(time.Second) / turn}, nil
}

// Next is the next arrival; At never goes back.
func (a *Arrivals) Next() Arrival {
	r := &a.requests[a.next]
	at := (float64(a.turns)*a.turn + float64(r.At)) * a.scale
	if a.next++; a.next == len(a.requests) {
		a.next = 0
		a.turns++
	}
	return Arrival{At: time.Duration(at), Request: r}
}

// Durations makes jobs take time in proportion to their generated tokens. A request without any
// counts as one token: no job takes no time.
type Durations struct {
	// PerToken is in nanoseconds.
	PerToken float64
}

// NewDurations keeps a share (0.8 is 80 %) of the slots busy on average when the requests arrive at
// rate a second: by Little's law the mean duration is share * slots / rate.
func NewDurations(requests []Request, rate float64, slots int, share float64) (Durations, error) {
	if len(requests) == 0 || !(rate > 0) || slots < 1 || !(share > 0) {
		return Durations{}, fmt.Errorf("%d requests, %v a second, %d slots, a share of %v: expected more than 0 of each", len(requests), rate, slots, share)
	}
	mean := share * float64(slots) / rate * float64(time.Second)
	return Durations{PerToken: mean / MeanTokens(requests)}, nil
}

// Of is how long a request's job takes.
func (d Durations) Of(r *Request) time.Duration {
	return time.Duration(math.Round(d.PerToken * float64(tokens(r))))
}

// MeanTokens is the mean of the generated tokens as durations count them. It is NaN of no requests.
func MeanTokens(requests []Request) float64 {
	sum := 0
	for i := range requests {
		sum += tokens(&requests[i])
	}
	return float64(sum) / float64(len(requests))
}

func tokens(r *Request) int { return max(r.GeneratedTokens, 1) }
