package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// slots is how many jobs a worker runs at a time, on one node.
const slots = 16

// setting is one way to run a contender.
type setting struct {
	worker, load    string // flags
	inFlight, batch int
}

func (s *setting) words() string {
	return fmt.Sprintf("%d in flight, %d a call, worker `%s`, load `%s`", s.inFlight, s.batch, s.worker, s.load)
}

// contender is a system whose jobs a second are compared.
type contender struct {
	name string
	// worker and load are the peers whose programs run the jobs and submit them.
	worker, load string
	// gateway: jobs go through one replica, and the worker is a node by its gateway.
	gateway  bool
	settings []setting
	best     setting
	rounds   []*round
}

// round is one window. cpuUs is the processor time of a job in microseconds, by the names of
// system.System.CPU.
type round struct {
	*load.Figures
	cpuUs map[string]float64
}

func (c *contender) shape(s *setting) system.Shape {
	shape := system.Shape{
		Program: c.worker, LoadProgram: c.load, AOF: system.AOFOff, Worker: s.worker, Load: s.load, Gateway: c.gateway,
	}
	if c.gateway {
		shape.Schedulers = 1
	}
	return shape
}

// measure does one window on a fresh system.
func (c *contender) measure(
	ctx context.Context, b *tool.Bench, p *system.Programs, s *setting, window time.Duration,
) *round {
	y := tool.Must(system.Start(ctx, p, c.shape(s)))
	defer tool.End(y.Stop)
	before := tool.Must(y.CPU())
	f := tool.Must(y.Ask(ctx, load.Request{
		Loop: load.Closed, InFlight: s.inFlight, Batch: s.batch,
		WarmUpMS: (window / 3).Milliseconds(), MeasureMS: window.Milliseconds(),
	}))
	b.Failed += f.Failures()
	r := &round{f, tool.Must(y.CPU())}
	for name := range r.cpuUs {
		r.cpuUs[name] = (r.cpuUs[name] - before[name]) * 1e6 / float64(max(f.Ended, 1))
	}
	return r
}

// choose sweeps the settings, and keeps the one that does most jobs a second. A short run takes the
// first.
func (c *contender) choose(ctx context.Context, b *tool.Bench, p *system.Programs, window time.Duration) {
	c.best = c.settings[0]
	if b.Short || len(c.settings) == 1 {
		return
	}
	most := 0.0
	for i := range c.settings {
		s := &c.settings[i]
		rate := c.measure(ctx, b, p, s, window).JobsPerSecond
		b.Progress("%s: %s jobs/s with %s", c.name, measure.Thousands(rate), s.words())
		if rate > most {
			most, c.best = rate, *s
		}
	}
}

// of is a figure of each round.
func (c *contender) of(figure func(*round) float64) []float64 {
	out := make([]float64, len(c.rounds))
	for i, r := range c.rounds {
		out[i] = figure(r)
	}
	return out
}

func (c *contender) rates() []float64 { return c.of(func(r *round) float64 { return r.JobsPerSecond }) }
func (c *contender) rate() float64    { return measure.Median(c.rates()) }

// cpu is the processor time of a job in some of the processes. It is nil where there are none, and
// for Celery's worker, which has children that are not known.
func (c *contender) cpu(name string) result.Figure {
	if name == "workers" && c.worker == "celery" || name == "replicas" && !c.gateway {
		return nil
	}
	return result.Figure{measure.FourFigures(measure.Median(c.of(func(r *round) float64 { return r.cpuUs[name] })))}
}

// compete sweeps all, measures them in turns, and adds a table.
func compete(ctx context.Context, b *tool.Bench, p *system.Programs, l tool.Length, all []*contender) {
	for _, c := range all {
		c.choose(ctx, b, p, l.Window)
	}
	tool.InTurns(b, l.Rounds, all, func(c *contender, _ int) {
		c.rounds = append(c.rounds, c.measure(ctx, b, p, &c.best, l.Window))
	})
	t := result.NewTable("System", "jobs [/s]", "least of a round [/s]", "most of a round [/s]",
		"submit to result, p50 [us]", "CPU a job of the worker [us]", "of the client [us]", "of the replica [us]",
		"of Redis [us]")
	for _, c := range all {
		rates := c.rates()
		p50 := measure.Median(c.of(func(r *round) float64 { return float64(r.Result.P50) }))
		t.Add(c.name+" ("+c.best.words()+")", c.rate(), slices.Min(rates), slices.Max(rates), p50,
			c.cpu("workers"), c.cpu("load"), c.cpu("replicas"), c.cpu("redis"))
	}
	b.Result.Tables = append(b.Result.Tables, t)
}

// faster holds the jobs a second of one against another's.
func faster(b *tool.Bench, what string, limit float64, ours, theirs *contender) {
	ratio := 0.0
	if theirs.rate() > 0 {
		ratio = ours.rate() / theirs.rate()
	}
	b.Target(what, result.Times, result.AtLeast, limit, ratio)
	b.Note("%s and %s jobs/s", measure.Thousands(ours.rate()), measure.Thousands(theirs.rate()))
}
