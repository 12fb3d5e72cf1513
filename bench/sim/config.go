package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

// The bounds of a simulation: what fits into some gigabytes.
const (
	maxReplicas = 1_000
	maxNodes    = 1_000_000
	maxViews    = 20_000_000 // replicas x nodes
)

// defaultBatchItems is how many jobs a call of the product's submit script carries at most.
const defaultBatchItems = 64

// config is one simulation.
type config struct {
	seed     uint64
	replicas int
	// slots are the slots of each node.
	slots []int
	// rate is arrivals a second over all replicas; each goes to a replica at random. jobs is how
	// many count, warmUp how many come before.
	rate         float64
	jobs, warmUp int
	// together is how many jobs come with one call of submit; 0 is 1. With groups they are placed
	// as a batch, and so are those that come alone while others are under way.
	together int
	groups   bool
	// spread has the spread of load measured, which looks at each node at each arrival.
	spread       bool
	meanDuration time.Duration
	// requests is the trace: arrivals with its bursts, durations in proportion to its tokens.
	// Without one arrivals are a Poisson process, and durations exponential.
	requests []request
	// prefill begins with as many slots taken as the load takes on average, instead of with an idle
	// fleet.
	prefill bool
	// candidates, rounds and batchItems are those of dispatch; 0 means its defaults.
	candidates, rounds, batchItems int

	// eventDelay is from a commit to the change in another replica's view, replyDelay from a
	// completion's commit to the submitting replica's view, roundTrip that of a submit call. None
	// means no delay.
	eventDelay, replyDelay, roundTrip quantiles
	// heartbeat is the nodes' interval, a tenth of it up or down at random; 0 is none.
	heartbeat time.Duration
}

func (c config) withDefaults() config {
	c.candidates = cmp.Or(c.candidates, dispatch.DefaultCandidates)
	c.rounds = cmp.Or(c.rounds, dispatch.DefaultRounds)
	c.batchItems = cmp.Or(c.batchItems, defaultBatchItems)
	c.together = cmp.Or(c.together, 1)
	for _, q := range []*quantiles{&c.eventDelay, &c.replyDelay, &c.roundTrip} {
		if *q == nil {
			*q = fixed(0)
		}
	}
	return c
}

// validate names every field that cannot be. c must have its defaults.
func (c *config) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(c.replicas >= 1 && c.replicas <= maxReplicas, "%d replicas, expected 1 to %d", c.replicas, maxReplicas)
	need(len(c.slots) >= 1 && len(c.slots) <= maxNodes, "%d nodes, expected 1 to %d", len(c.slots), maxNodes)
	need(c.replicas*len(c.slots) <= maxViews, "%d replicas of %d nodes, expected a product of at most %d", c.replicas, len(c.slots), maxViews)
	for i, n := range c.slots {
		need(n >= 1, "node %d has %d slots, expected at least 1", i, n)
	}
	need(c.rate > 0 && !math.IsInf(c.rate, 0), "%v arrivals a second, expected more than 0", c.rate)
	need(c.jobs >= 1 && c.warmUp >= 0, "%d jobs after %d of warm-up, expected at least 1 after at least 0", c.jobs, c.warmUp)
	need(c.meanDuration > 0 && c.heartbeat >= 0, "mean duration %s, heartbeats every %s, expected more than 0 and at least 0", c.meanDuration, c.heartbeat)
	need(c.candidates >= 1 && c.candidates <= cell.MaxCandidates, "%d candidates, expected 1 to %d", c.candidates, cell.MaxCandidates)
	need(c.together >= 1 && c.together <= selection.MaxBatch, "%d jobs together, expected 1 to %d", c.together, selection.MaxBatch)
	need(c.rounds >= 1 && c.batchItems >= 1, "%d rounds, %d jobs a call, expected at least 1", c.rounds, c.batchItems)
	return errors.Join(append(errs, c.eventDelay.validate(), c.replyDelay.validate(), c.roundTrip.validate())...)
}

func sum(values []int) int {
	n := 0
	for _, v := range values {
		n += v
	}
	return n
}

// load is the share of all slots that the jobs take on average, were none refused.
func (c *config) load() float64 {
	return c.rate * c.meanDuration.Seconds() / float64(sum(c.slots))
}
