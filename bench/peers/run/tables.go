package main

import (
	"fmt"
	"strings"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
)

// sayMode describes how contenders are measured.
func (b *bench) sayMode(m mode) {
	b.Result.Servers = strings.Join(append([]string{b.redis}, b.others...), ", ") + ", append-only file " + m.aof
	if m.distance > 0 {
		b.Result.Servers += ", every round trip " + measure.Micros(m.distance.Microseconds()) + " longer"
	}
	b.Say("Each with the best setting of a sweep; medians of interleaved rounds, each freshly started; windows of %s after %s. Settings and why: [README](README.md).",
		b.window, measure.Millis(b.warmUp()))
	b.Say("A job has a payload of %d bytes; its record and its result are kept, and the submitter reads the result. Its handler does nothing.", load.PayloadBytes)
	b.Say("Levels are shares of each one's own saturation, in an open loop, at 10 %% by a call for each job; times begin when a job was due.")
}

var (
	levelColumns = result.Columns("jobs due [/s]", "submit to assign [us]", "submit to start [us]", "submit to result [us]",
		"bare EVALSHA beside [us]", "submitted late [us]", "failed")
	sweepColumns = result.Columns("jobs [/s]", "submit to result, p50 [us]")
)

// tables are the throughput, the latency and the sweep of all contenders.
func (b *bench) tables(all []*contender) {
	saturation := result.NewTable("Peer", "jobs [/s]", "least and most [/s]", "rounds", "load, CPU a job [us]", "replicas [us]",
		"workers [us]", "Redis or NATS [us]", "Redis busy [%]")
	saturation.Title = "At saturation"
	levels := result.Table{Title: "At shares of the saturation", First: "Peer", Columns: levelColumns}
	sweep := result.Table{Title: "The sweep", First: "Setting", Columns: sweepColumns}
	for _, c := range all {
		saturation.Rows = append(saturation.Rows, c.saturationRow())
		for _, share := range shares {
			levels.Rows = append(levels.Rows, c.levelRow(share))
		}
		sweep.Rows = append(sweep.Rows, c.sweepRows()...)
	}
	b.Result.Tables = []result.Table{saturation, levels, sweep}
}

func (c *contender) saturationRow() result.Row {
	row := result.Row{Name: strings.TrimSpace(c.title() + " " + c.version), Figures: []result.Figure{
		{c.throughput()}, c.extremes(), {float64(len(c.rounds))},
	}}
	row.Figures = append(row.Figures, c.cpuFigures()...)
	row.Figures = append(row.Figures, c.redisBusy())
	return row
}

// extremes are the jobs a second of the slowest and the fastest round.
func (c *contender) extremes() result.Figure {
	var rates []float64
	for i := range c.rounds {
		rates = append(rates, c.rounds[i].saturation.JobsPerSecond)
	}
	return result.Figure{measure.Quantile(rates, 0), measure.Quantile(rates, 1)}
}

// cpuFigures are the microseconds a job of the load generator, replicas, workers, and of the server
// that keeps the jobs.
func (c *contender) cpuFigures() (out []result.Figure) {
	for _, name := range []string{"load", "replicas", "workers"} {
		out = append(out, c.median(func(r *round) float64 { return r.cpu[name] }))
	}
	return append(out, c.median(func(r *round) float64 { return r.cpu["redis"] + r.cpu["server"] }))
}

func (c *contender) redisUs() result.Figure {
	return c.median(func(r *round) float64 { return r.redisUs })
}

func (c *contender) redisBusy() result.Figure {
	return c.median(func(r *round) float64 { return 100 * r.redisBusy })
}

// oneP50 is the time to result of one job at a time.
func (c *contender) oneP50() result.Figure {
	return c.oneAtATime(func(f *load.Figures) int64 { return f.Result.P50 })
}

// oneStartP50 is the time until the start of one job at a time.
func (c *contender) oneStartP50() result.Figure {
	return c.oneAtATime(func(f *load.Figures) int64 { return f.Start.P50 })
}

// bareP50 is a bare round trip with nothing beside.
func (c *contender) bareP50() result.Figure {
	return c.median(func(r *round) float64 {
		if r.bare == nil {
			return 0
		}
		return float64(r.bare.P50)
	})
}

func (c *contender) oneAtATime(of func(*load.Figures) int64) result.Figure {
	return c.median(func(r *round) float64 {
		if r.one == nil {
			return 0
		}
		return float64(of(r.one))
	})
}

func (c *contender) levelRow(share float64) result.Row {
	times := func(of func(*level) *load.Times) result.Figure {
		if c.at(share, p50(of)) == nil {
			return nil
		}
		return result.Figure{
			c.at(share, p50(of))[0], c.at(share, p99(of))[0],
			c.at(share, quantile(of, func(t *load.Times) int64 { return t.P999 }))[0],
		}
	}
	failed := 0.0
	for i := range c.rounds {
		for _, l := range c.rounds[i].levels {
			if l.share == share {
				failed += float64(l.Failures())
			}
		}
	}
	return result.Row{Name: fmt.Sprintf("%s, at %.0f %%", c.title(), share*100), Figures: []result.Figure{
		c.at(share, func(l *level) float64 { return l.rate }), times(assign), times(start),
		times(func(l *level) *load.Times { return &l.Result }), times(bare), times(func(l *level) *load.Times { return l.Late }),
		{failed},
	}}
}

func (c *contender) sweepRows() (rows []result.Row) {
	for i := range c.sweep {
		p := &c.sweep[i]
		row := result.Row{Name: c.title() + ": " + p.words(), Figures: []result.Figure{{p.jobsPerSecond}, {float64(p.resultP50)}}}
		switch {
		case p.err != nil:
			row.Name, row.Figures = row.Name+": "+p.err.Error(), nil
		case p.setting == c.best:
			row.Name += " **(taken)**"
		}
		rows = append(rows, row)
	}
	return rows
}

// throughput is the median of the rounds, in jobs a second.
func (c *contender) throughput() float64 {
	f := c.median(func(r *round) float64 { return r.saturation.JobsPerSecond })
	if f == nil {
		return 0
	}
	return f[0]
}

// median is the median over the rounds that have a value above 0; nil where none has.
func (c *contender) median(of func(*round) float64) result.Figure {
	var all []float64
	for i := range c.rounds {
		if v := of(&c.rounds[i]); v > 0 {
			all = append(all, v)
		}
	}
	if all == nil {
		return nil
	}
	return result.Figure{measure.FourFigures(measure.Median(all))}
}

// at is the median of a figure of one level.
func (c *contender) at(share float64, of func(*level) float64) result.Figure {
	return c.median(func(r *round) float64 {
		for i := range r.levels {
			if r.levels[i].share == share {
				return of(&r.levels[i])
			}
		}
		return 0
	})
}

// The distributions of a level, and their quantiles.
func assign(l *level) *load.Times { return l.Assign }
func start(l *level) *load.Times  { return &l.Start }
func bare(l *level) *load.Times   { return l.Bare }

func p50(of func(*level) *load.Times) func(*level) float64 {
	return quantile(of, func(t *load.Times) int64 { return t.P50 })
}

func p99(of func(*level) *load.Times) func(*level) float64 {
	return quantile(of, func(t *load.Times) int64 { return t.P99 })
}

// quantile is 0 where the distribution was not measured.
func quantile(of func(*level) *load.Times, q func(*load.Times) int64) func(*level) float64 {
	return func(l *level) float64 {
		if t := of(l); t != nil {
			return float64(q(t))
		}
		return 0
	}
}
