package main

import (
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// The fleet of batches. It is one of many small nodes, where groups save the most calls.
const (
	batchNodes, batchSlots = 100, 16
	together               = 64
	// noOp is how long a job that does nothing holds its slot: its way to the node and back.
	noOp     = time.Millisecond
	noOpRate = 20_000
	handler  = 10 * time.Millisecond
	busyTrip = 2_000.0 // microseconds
)

// batches places the jobs of each arrival one by one, and in groups.
func (o *options) batches(b *tool.Bench) {
	b.Say("%d nodes of %d slots. %d jobs arrive at once, or one alone, at random moments (a Poisson process), at a replica at random. They are placed one by one, or in groups.", batchNodes, batchSlots, together)
	b.Say("Jobs hold their slots for exponential times: 1 ms on average for a handler that does nothing, at 20,000 jobs/s, or 10 ms at the rate that keeps so many slots busy.")
	b.Say("Wait is from a job's arrival until it has a slot; the time that Redis takes, which groups save, is not in it. Nodes a call are those at which the script looks. Spread is the standard deviation of the nodes' loads.")
	b.Say("Delays and candidates are as in the other parts. Only calls for jobs that come alone take 2 ms, as with a busy Redis: else few are under way together. Seed %d.", o.seed)
	in := &inputs{seed: o.seed, short: b.Short}
	var points []point
	for _, replicas := range pick(in, []int{1, 4, 16}) {
		for _, busy := range pick(in, []float64{0, 0.5, 0.8, 0.95}) {
			points = append(points, in.placements(replicas, busy, together)...)
			if replicas == 4 {
				points = append(points, in.placements(replicas, busy, 1)...)
			}
		}
	}
	outcomes := tool.Must(simulateAll(points, o.parallel))
	(&figure{points: points}).fill(b, outcomes)
	t := result.NewTable("Replicas, load, placement", "refused / tried [%]", "jobs without a slot at once [%]",
		"wait p50 / p99 [us]", "nodes a call", "spread [%]")
	for i, p := range points {
		out := outcomes[i]
		wait := func(q float64) float64 {
			return measure.FourFigures(float64(out.waits[int(q*float64(len(out.waits)-1))]) / 1000)
		}
		c := &out.counts
		t.Add(p.line, 100*out.conflictRate(), 100*float64(c.overloaded)/float64(c.arrived), result.Figure{wait(0.5), wait(0.99)},
			float64(c.met)/float64(c.scripts), 100*out.spread)
	}
	b.Result.Tables = []result.Table{t}
}

// placements are runs of jobs that are placed one by one, and in groups. busy is the share of slots
// that are, 0 is for handlers that do nothing.
func (in *inputs) placements(replicas int, busy float64, together int) []point {
	name, rate, mean := "handlers that do nothing", float64(noOpRate), noOp
	if busy > 0 {
		name, rate, mean = fmt.Sprintf("%.0f %% busy", busy*100), busy*batchNodes*batchSlots/handler.Seconds(), handler
	}
	name = measure.Plural(replicas, "replica") + ", " + name
	cfg := in.standard(fleetOf([]int{batchSlots}, batchNodes), replicas, rate, mean)
	cfg.requests, cfg.together, cfg.spread = nil, together, true
	if together == 1 {
		name += ", jobs alone"
		cfg.roundTrip = skewed(busyTrip, tailFactor*busyTrip)
	}
	grouped := cfg
	grouped.groups = true
	return []point{{line: name + ", one by one", cfg: cfg}, {line: name + ", in groups", cfg: grouped}}
}
