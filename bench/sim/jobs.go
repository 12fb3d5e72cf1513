package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// jobs makes the jobs of a run: when each comes and how long it holds its slot. It draws from a
// source of its own, so that the same jobs come whatever becomes of them.
type jobs struct {
	cfg      *config
	rnd      *rand.Rand
	replay   *arrivals // nil without a trace
	perToken float64   // nanoseconds
	weighted []int     // sums of tokens up to each request, to draw by tokens
	at       float64
}

// job is one of them. Times are in nanoseconds since the run began.
type job struct{ at, held int64 }

func newJobs(cfg *config) (*jobs, error) {
	j := &jobs{cfg: cfg, rnd: source(cfg.seed, 1)}
	if cfg.requests == nil {
		return j, nil
	}
	var err error
	if j.replay, err = newArrivals(cfg.requests, cfg.rate); err != nil {
		return nil, err
	}
	j.perToken = float64(cfg.meanDuration) / meanTokens(cfg.requests)
	tokens := 0
	for i := range cfg.requests {
		tokens += cfg.requests[i].tokens
		j.weighted = append(j.weighted, tokens)
	}
	return j, nil
}

// source is the n-th random source of a seed.
func source(seed, n uint64) *rand.Rand {
	return rand.New(selection.NewSource(selection.NewSource(seed + n<<32).Uint64())) //nolint:gosec // a simulation
}

// following is the next job.
func (j *jobs) following() job {
	if j.replay != nil {
		at, r := j.replay.next()
		return job{at, max(r.held(j.perToken), 1)}
	}
	j.at += j.rnd.ExpFloat64() * float64(time.Second) / j.cfg.rate
	return job{int64(j.at), max(int64(j.rnd.ExpFloat64()*float64(j.cfg.meanDuration)), 1)}
}

// remaining is how much longer a job still holds its slot that is found at work at a random moment:
// long jobs are found more often, anywhere between their begin and their end.
func (j *jobs) remaining() int64 {
	if j.replay == nil {
		return max(int64(j.rnd.ExpFloat64()*float64(j.cfg.meanDuration)), 1)
	}
	i, _ := slices.BinarySearch(j.weighted, j.rnd.IntN(j.weighted[len(j.weighted)-1])+1)
	return max(int64(j.rnd.Float64()*float64(j.cfg.requests[i].held(j.perToken))), 1)
}
