package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/sim"
	"github.com/freeslot/freeslot/bench/trace"
)

const (
	// workReplicas is how many replicas share the arrivals.
	workReplicas = 4
	// madeUpNodes and madeUpRequests stand in where no files are given.
	madeUpNodes    = 400
	madeUpRequests = 20_000
	workSeed       = 7
)

// workload is what the replicas and the agents of one run do; each process makes it anew from the same
// arguments, and comes to the same.
type workload struct {
	Trace string  `json:"trace"`
	Nodes string  `json:"nodes"`
	Rate  float64 `json:"rate"`
	Share float64 `json:"share"`
	// LostMS is for how long a slot is taken besides the job's own time.
	LostMS float64 `json:"lost_ms"`
	// RampS is for how many seconds the arrivals grow, in proportion to the time, before they come at Rate.
	RampS float64 `json:"ramp_s"`
	// Endings says that replicas note when they hear of the ends of some jobs.
	Endings bool `json:"endings"`
	// Limit is how many nodes there are; 0 is all.
	Limit int `json:"limit"`

	fleet     []trace.Node
	requests  []trace.Request
	durations trace.Durations
}

func (w *workload) load() (err error) {
	if w.Nodes != "" {
		var list []trace.Node
		if list, err = trace.OpenNodes(w.Nodes); err != nil {
			return err
		}
		w.fleet = trace.Fleet(list, w.Limit)
	} else {
		w.fleet = madeUpFleet(w.Limit)
	}
	if w.Trace != "" {
		if w.requests, err = trace.OpenRequests(w.Trace); err != nil {
			return err
		}
	} else {
		w.requests = madeUpTrace()
	}
	if len(w.fleet) == 0 {
		return fmt.Errorf("%s: no node has a slot", w.Nodes)
	}
	busy := w.Share - w.Rate*w.LostMS/1000/float64(w.slots())
	w.durations, err = trace.NewDurations(w.requests, w.Rate, w.slots(), busy)
	return err
}

func (w *workload) slots() int { return trace.TotalSlots(w.fleet) }

func (w *workload) mean() time.Duration {
	return time.Duration(w.durations.PerToken * trace.MeanTokens(w.requests))
}

// kinds are the workload in the words of the simulation.
func (w *workload) kinds() (sim.ArrivalKind, sim.DurationKind) {
	if w.Trace == "" {
		return sim.ArrivalsPoisson, sim.DurationsExponential
	}
	return sim.ArrivalsPoisson, sim.DurationsTrace
}

// arrivals is a Poisson process, each arrival at a random one of the replicas; every process gets the same.
// The trace's own order is not for such rates: its hour, ups and downs included, would pass in two seconds.
type arrivals struct {
	work   *workload
	random *rand.Rand
	at     float64 // seconds
}

func (w *workload) arrivals() *arrivals {
	return &arrivals{work: w, random: rand.New(rand.NewPCG(workSeed, workSeed))}
}

// arrive is the next arrival: when, at which replica, and what it asks for.
func (a *arrivals) arrive() (at time.Duration, replica int, r *trace.Request) {
	a.at += a.random.ExpFloat64() / a.work.Rate
	r = &a.work.requests[a.random.IntN(len(a.work.requests))]
	return time.Duration(ramped(a.at, a.work.RampS) * float64(time.Second)), a.random.IntN(workReplicas), r
}

// ramped is the moment, in seconds, by which as many have arrived as at the full rate by the moment at.
func ramped(at, ramp float64) float64 {
	if at < ramp/2 {
		return math.Sqrt(2 * ramp * at)
	}
	return at + ramp/2
}

// profile is a node as its agent states it.
func profile(n *trace.Node) freeslot.Node { return *n.Profile(benchService) }

// madeUpFleet has nodes of 1 to 8 slots.
func madeUpFleet(count int) []trace.Node {
	if count == 0 {
		count = madeUpNodes
	}
	out := make([]trace.Node, count)
	for i := range out {
		out[i] = trace.Node{ID: benchNodeID(i), GPU: []int{2, 8, 1, 4, 8, 8, 2, 8}[i%8], Model: "made-up"}
	}
	return out
}

// madeUpTrace has exponential gaps and exponential durations.
func madeUpTrace() []trace.Request {
	random := rand.New(rand.NewPCG(3, 4))
	out := make([]trace.Request, madeUpRequests)
	at := 0.0
	for i := range out {
		out[i] = trace.Request{At: time.Duration(at), GeneratedTokens: int(math.Ceil(random.ExpFloat64() * 1000))}
		at += random.ExpFloat64() * float64(time.Millisecond)
	}
	return out
}
