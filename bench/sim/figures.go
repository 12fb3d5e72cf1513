package main

import (
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/plot"
)

// The standard load of the figures.
const (
	standardRate  = 10_000 // arrivals a second
	standardBusy  = 0.8
	standardEvent = 200.0 // median delay of events, in microseconds
	standardTrip  = 150.0 // median round trip of a call, in microseconds
	// tailFactor is the 99th percentile of a delay over its median.
	tailFactor       = 4
	standardBeat     = 3 * time.Second
	standardDuration = 500 * time.Millisecond
)

// inputs are what the figures are driven by. short makes small fleets and few jobs: it shows that a
// figure can be made.
type inputs struct {
	seed     uint64
	requests []request
	nodes    []int // the slots of each
	short    bool
}

// figure is a plot whose lines are still to be simulated.
type figure struct {
	method []string
	plot   plot.Figure
	points []point
}

// point is one simulation.
type point struct {
	line string
	x    float64
	cfg  config
}

// fleet is the standard configuration of so many nodes (0 is the list's own number), loaded to a
// share of its slots at a rate of arrivals.
func (in *inputs) fleet(nodes, replicas int, rate float64) config {
	slots := fleetOf(in.nodes, nodes)
	mean := time.Duration(standardBusy * float64(sum(slots)) / rate * float64(time.Second))
	return in.standard(slots, replicas, rate, mean)
}

// standard is a configuration with the standard delays.
func (in *inputs) standard(slots []int, replicas int, rate float64, mean time.Duration) config {
	cfg := config{
		seed: in.seed, replicas: replicas, slots: slots, rate: rate, requests: in.requests, jobs: 100_000, warmUp: 20_000, prefill: true,
		eventDelay: skewed(standardEvent, tailFactor*standardEvent), replyDelay: skewed(standardEvent, tailFactor*standardEvent),
		roundTrip: skewed(standardTrip, tailFactor*standardTrip), heartbeat: standardBeat,
		meanDuration: mean,
	}
	if in.short {
		cfg.jobs, cfg.warmUp = 1_000, 200
	}
	return cfg
}

// of makes a short run small.
func (in *inputs) of(nodes int) int {
	if in.short {
		return min(max(nodes, 20), 100)
	}
	return nodes
}

// pick is the first and the last of all in a short run.
func pick[T any](in *inputs, all []T) []T {
	if in.short {
		return []T{all[0], all[len(all)-1]}
	}
	return all
}

func (in *inputs) delay() figure {
	f := figure{
		method: []string{"The median delay of events varies, and that of completion replies with it; the 99th percentile is four times the median. The round trip of a call stays."},
		plot: plot.Figure{
			Title: "Conflicts over the delay of events",
			X:     plot.Axis{Label: "median event delay, ms", Log: true}, Y: plot.Axis{Label: "refused / tried", Log: true, Percent: true},
		},
	}
	for _, replicas := range pick(in, []int{1, 4, 16, 100}) {
		for _, us := range pick(in, []float64{50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000}) {
			cfg := in.fleet(in.of(0), replicas, standardRate)
			cfg.eventDelay = skewed(us, tailFactor*us)
			cfg.replyDelay = cfg.eventDelay
			f.points = append(f.points, point{line: measure.Plural(replicas, "replica"), x: us / 1000, cfg: cfg})
		}
	}
	return f
}

func (in *inputs) size() figure {
	f := figure{
		method: []string{
			"Either the rate stays, and jobs are the longer the larger the fleet, or the mean duration stays, and the rate grows with the fleet (to 820,000/s).",
			"The rise near 1,000 nodes is the trace's: there its bursts are as long as the jobs, and many nodes are full in them.",
			"A point without conflicts (of 100,000 jobs with 100 replicas, 300,000 with 4) is not drawn.",
		},
		plot: plot.Figure{
			Title: "Conflicts over the size of the fleet",
			X:     plot.Axis{Label: "nodes", Log: true}, Y: plot.Axis{Label: "refused / tried", Log: true, Percent: true},
		},
	}
	add := func(line string, nodes, replicas int, rate float64) {
		cfg := in.fleet(nodes, replicas, rate)
		if !in.short && replicas < 100 {
			cfg.jobs = 300_000 // conflicts of a large fleet are rare
		}
		f.points = append(f.points, point{line: measure.Plural(replicas, "replica") + line, x: float64(nodes), cfg: cfg})
	}
	for _, replicas := range []int{4, 100} {
		for _, n := range pick(in, []int{100, 300, 1_000, 3_000, 10_000, 30_000, 100_000}) {
			n = in.of(n)
			slots := float64(sum(fleetOf(in.nodes, n)))
			add(fmt.Sprintf(", %d/s", standardRate), n, replicas, standardRate)
			add(fmt.Sprintf(", jobs of %s", standardDuration), n, replicas, standardBusy*slots/standardDuration.Seconds())
		}
	}
	return f
}

// method is what all figures have in common.
func (in *inputs) method() []string {
	list := fleetOf(in.nodes, in.of(0))
	return []string{
		fmt.Sprintf("%d nodes of the list with %d slots (one a GPU) unless said otherwise; %d arrivals a second of the trace, with its bursts; durations in proportion to generated tokens so that %.0f %% of slots are busy.",
			len(list), sum(list), standardRate, standardBusy*100),
		fmt.Sprintf("Event delay %.0f us, round trip %.0f us (medians; the 99th percentile is four times that); heartbeats every %s; d = 2, two candidates a call, up to four rounds. Seed %d.",
			standardEvent, standardTrip, standardBeat, in.seed),
	}
}
