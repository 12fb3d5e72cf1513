package main

import (
	"fmt"
	"math"
	"time"
)

// arrivals replays a trace without end, faster or slower than it was, so that a given rate is its
// average over each turn. Bursts are kept, in the same proportion to the average.
type arrivals struct {
	requests []request
	scale    float64 // replayed time over the trace's
	turn     float64 // trace's time of a turn, in nanoseconds
	at       int
	turns    int
}

// newArrivals replays requests at rate a second. A trace that ends begins again. At this seam the
// gap is the trace's average gap, so a turn of n requests takes n/(n-1) of the time between the
// first and the last.
func newArrivals(requests []request, rate float64) (*arrivals, error) {
	n := float64(len(requests))
	if n < 2 || requests[len(requests)-1].at <= 0 {
		return nil, fmt.Errorf("the trace has %d requests, expected at least two at different times", len(requests))
	}
	turn := float64(requests[len(requests)-1].at) * n / (n - 1)
	return &arrivals{requests: requests, turn: turn, scale: n / rate * float64(time.Second) / turn}, nil
}

// next is the next request, and when it arrives, in nanoseconds from the beginning.
func (a *arrivals) next() (int64, *request) {
	r := &a.requests[a.at]
	at := (float64(a.turns)*a.turn + float64(r.at)) * a.scale
	if a.at++; a.at == len(a.requests) {
		a.at = 0
		a.turns++
	}
	return int64(at), r
}

// held is how long a request's job takes at so many nanoseconds a token.
func (r *request) held(perToken float64) int64 {
	return int64(math.Round(perToken * float64(r.tokens)))
}

// meanTokens is the mean of the generated tokens.
func meanTokens(requests []request) float64 {
	tokens := 0
	for i := range requests {
		tokens += requests[i].tokens
	}
	return float64(tokens) / float64(len(requests))
}
