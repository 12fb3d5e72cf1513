package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// awayBy is how much longer a round trip takes in the part "away".
const awayBy = time.Millisecond

// errNoJob: the window was too short for anything to end in it.
var errNoJob = errors.New("no job ended in the window")

// shares are the levels of load, of each entry's own saturation.
var shares = []float64{low, 0.5, high}

const (
	// low is so little load that a call gathers nothing: each job is submitted by a call of its
	// own.
	low  = 0.1
	high = 0.8
)

// mode is the conditions under which entries are compared.
type mode struct {
	aof      string
	distance time.Duration
	// only are the names of the entries; nil means all.
	only []string
	// one: each round also measures one job at a time.
	one bool
}

// contender is an entry in one mode and what it came to.
type contender struct {
	*entry
	version string
	best    setting
	sweep   []point
	rounds  []round
}

// point is one setting of a sweep; err is the reason why it has no figures.
type point struct {
	setting
	jobsPerSecond float64
	resultP50     int64
	err           error
}

// round is a start of a peer at saturation, and another one at shares of it.
type round struct {
	saturation *load.Figures
	// cpu is the microseconds a job by process at saturation, redisUs is the time of Redis' main
	// thread, redisBusy the share of its time.
	cpu                map[string]float64
	redisUs, redisBusy float64
	levels             []level
	// one is one job at a time, bare the round trips of an EVALSHA one after the other on the same
	// system; nil without a yardstick.
	one  *load.Figures
	bare *load.Times
}

// level is an open loop at a share of the saturation.
type level struct {
	share, rate float64
	*load.Figures
}

func (b *bench) plain(ctx context.Context) {
	contenders := b.compare(ctx, mode{aof: system.AOFOff, one: true})
	b.plainTargets(contenders)
	b.plots(contenders)
}

func (b *bench) always(ctx context.Context) {
	contenders := b.compare(ctx, mode{aof: "always", only: []string{inProcess, asynq}, one: true})
	b.against("end to end in process with the append-only file `always`, against asynq", 3, contenders, inProcess)
}

func (b *bench) away(ctx context.Context) {
	m := mode{aof: system.AOFOff, distance: awayBy, only: []string{inProcess, asynq}, one: true}
	contenders := b.compare(ctx, m)
	b.awayTarget(contenders)
	b.against("end to end 1 ms away from Redis, against asynq", 4, contenders, inProcess)
}

// compare measures the entries under the same conditions: a sweep of each, then rounds in which
// each is started afresh, in another order each time.
func (b *bench) compare(ctx context.Context, m mode) (out []*contender) {
	b.sayMode(m)
	contenders := b.sweepAll(ctx, m, entries())
	// Levels are shares of the median of all rounds, so all come before the first of them.
	b.inTurns(ctx, contenders, func(c *contender, _ int) { b.saturation(ctx, m, c) })
	b.inTurns(ctx, contenders, func(c *contender, r int) { b.levels(ctx, m, c, r, c.throughput(), shares) })
	for _, c := range contenders {
		c.rounds = slices.DeleteFunc(c.rounds, func(r round) bool { return len(r.levels) == 0 })
		if len(c.rounds) > 0 {
			out = append(out, c)
		}
	}
	b.tables(out)
	return out
}

// inTurns measures all contenders in each round, in another order each time.
func (b *bench) inTurns(ctx context.Context, contenders []*contender, measured func(c *contender, round int)) {
	for r := range b.rounds {
		for _, i := range rand.Perm(len(contenders)) {
			c := contenders[i]
			b.unlessFailed(ctx, func() string { return fmt.Sprintf("%s, round %d", c.title(), r+1) }, func() { measured(c, r) })
		}
	}
}

// unlessFailed goes on where something could not be measured, and notes it, and reports whether it
// was.
func (b *bench) unlessFailed(ctx context.Context, what func() string, measured func()) bool {
	err := tool.Try(measured)
	tool.Check(ctx.Err())
	if err != nil {
		b.leftOut(what(), err)
	}
	return err == nil
}

// leftOut notes what could not be measured.
func (b *bench) leftOut(what string, err error) {
	b.Say("Not measured: %s: %v.", what, err)
	b.Progress("%s is left out: %v", what, err)
}

// sweepAll finds the best setting of each entry. An entry that cannot be measured is left out.
func (b *bench) sweepAll(ctx context.Context, m mode, all []entry) (contenders []*contender) {
	for i := range all {
		e := &all[i]
		if m.only != nil && !slices.Contains(m.only, e.name) || !b.wanted(e.name) {
			continue
		}
		c := &contender{entry: e, version: system.PeerVersion(ctx, b.Root, e.program)}
		if b.unlessFailed(ctx, e.title, func() {
			tool.Check(b.buildPeer(ctx, e.program))
			b.sweepOne(ctx, m, c)
		}) {
			contenders = append(contenders, c)
		}
	}
	return contenders
}

// sweepOne measures the throughput of each setting. Settings that differ only in how jobs are
// submitted share a start.
func (b *bench) sweepOne(ctx context.Context, m mode, c *contender) {
	settings := c.grouped(b.Short)
	var failures error
	for i := 0; i < len(settings); {
		n := 1
		for i+n < len(settings) && sameProcesses(settings[i], settings[i+n]) {
			n++
		}
		err := b.sweepGroup(ctx, m, c, settings[i:i+n])
		tool.Check(ctx.Err())
		failures = errors.Join(failures, err)
		i += n
	}
	best := slices.MaxFunc(c.sweep, func(a, z point) int { return cmp.Compare(a.jobsPerSecond, z.jobsPerSecond) })
	if best.jobsPerSecond == 0 {
		tool.Check(failures)
	}
	c.best = best.setting
	b.Progress("%s: best of %d settings: %s: %s jobs/s",
		c.title(), len(settings), best.words(), measure.Thousands(best.jobsPerSecond))
}

// grouped is the sweep, in groups that share processes.
func (e *entry) grouped(short bool) []setting {
	s := slices.Clone(e.sweep)
	if short {
		s = s[:min(len(s), shortSweep)]
	}
	slices.SortStableFunc(s, func(a, z setting) int {
		return cmp.Or(cmp.Compare(a.worker, z.worker), cmp.Compare(a.load, z.load), cmp.Compare(a.processes, z.processes))
	})
	return s
}

func sameProcesses(a, z setting) bool {
	return a.worker == z.worker && a.load == z.load && a.processes == z.processes
}

func (b *bench) sweepGroup(ctx context.Context, m mode, c *contender, settings []setting) error {
	measured := 0
	err := tool.Try(func() {
		s := b.start(ctx, m, c.entry, settings[0])
		defer tool.End(s.Stop)
		b.heat(ctx, s, settings[0])
		window := max(b.window.Milliseconds()*3/5, 300)
		for _, setting := range settings {
			f := tool.Must(s.Ask(ctx, load.Request{
				Loop: load.Closed, InFlight: setting.inFlight, Batch: setting.batch, WarmUpMS: b.warmUp(), MeasureMS: window,
			}))
			c.sweep = append(c.sweep, point{setting: setting, jobsPerSecond: f.JobsPerSecond, resultP50: f.Result.P50})
			measured++
		}
	})
	for _, s := range settings[measured:] {
		c.sweep = append(c.sweep, point{setting: s, err: err})
	}
	return err
}

func (b *bench) start(ctx context.Context, m mode, e *entry, s setting) *system.System {
	return tool.Must(system.Start(ctx, cmp.Or(e.programs, b.programs), system.Shape{
		Program: e.program, Store: e.store, AOF: m.aof, Away: m.distance,
		Schedulers: e.schedulers, Gateway: e.gateway, Worker: s.worker, Processes: s.processes, Load: s.load,
	}))
}

// heat has a fresh system do the load for a whole window that does not count: pools fill, and what
// is compiled while it runs is compiled.
func (b *bench) heat(ctx context.Context, s *system.System, setting setting) load.Request {
	r := load.Request{
		Loop: load.Closed, InFlight: setting.inFlight, Batch: setting.batch, MeasureMS: b.window.Milliseconds(),
	}
	tool.Must(s.Ask(ctx, r))
	return r
}

// saturation starts a peer afresh and measures it at saturation.
func (b *bench) saturation(ctx context.Context, m mode, c *contender) {
	s := b.start(ctx, m, c.entry, c.best)
	defer tool.End(s.Stop)
	request := b.heat(ctx, s, c.best)
	request.WarmUpMS = b.warmUp() // else the first jobs of all callers count and their last do not
	r := b.costs(ctx, s, request)
	if m.one {
		b.oneAtATime(ctx, s, c.yardstick, r)
	}
	c.rounds = append(c.rounds, *r)
	b.Failed += r.saturation.Failures()
	b.Progress("%s: %s jobs/s", c.title(), measure.Thousands(r.saturation.JobsPerSecond))
}

// costs does a load, and measures what the processes spend on it.
func (b *bench) costs(ctx context.Context, s *system.System, request load.Request) *round {
	cpuBefore, cpuErr := s.CPU()
	m := tool.Must(system.NewMeter(ctx, s.Redis))
	r := &round{cpu: make(map[string]float64), saturation: tool.Must(s.Ask(ctx, request))}
	if r.saturation.Jobs == 0 {
		tool.Check(errNoJob)
	}
	used := tool.Must(m.Spent(ctx))
	r.redisBusy, r.redisUs = used.Redis/used.Seconds, used.Cost(r.saturation.Ended).CPUPerJob
	cpuAfter, err := s.CPU()
	if errors.Join(cpuErr, err) != nil {
		return r // only some operating systems have these figures
	}
	for name := range cpuAfter {
		r.cpu[name] = (cpuAfter[name] - cpuBefore[name]) * 1e6 / float64(r.saturation.Ended)
	}
	return r
}

// oneAtATime measures jobs one at a time, and bare round trips where there is a yardstick.
func (b *bench) oneAtATime(ctx context.Context, s *system.System, yardstick bool, r *round) {
	window := max(b.window.Milliseconds()/3, 300)
	if yardstick {
		r.bare = tool.Must(s.Ask(ctx, load.Request{Loop: load.Bare, MeasureMS: window})).Bare
	}
	r.one = tool.Must(s.Ask(ctx, load.Request{Loop: load.Closed, InFlight: 1, WarmUpMS: 100, MeasureMS: window}))
}

// levels starts a peer afresh and measures it at shares of full, for one of its rounds.
func (b *bench) levels(ctx context.Context, m mode, c *contender, i int, full float64, shares []float64) {
	if i >= len(c.rounds) {
		return // one failed, which the report has
	}
	s := b.start(ctx, m, c.entry, c.best)
	defer tool.End(s.Stop)
	b.heat(ctx, s, c.best)
	var levels []level
	for _, share := range shares {
		rate, batch := full*share, c.best.batch
		if share <= low {
			batch = 1
		}
		f, err := s.Ask(ctx, load.Request{
			Loop: load.Open, Rate: rate, InFlight: c.best.inFlight, Batch: batch,
			WarmUpMS: b.warmUp(), MeasureMS: b.window.Milliseconds(),
		})
		if err != nil {
			tool.Check(fmt.Errorf("at %.0f %%: %w", share*100, err))
		}
		b.Failed += f.Failures()
		levels = append(levels, level{share, measure.Rounded(rate), f})
		b.Progress("%s: result at %.0f %%: %s", c.title(), share*100, f.Result.Words())
	}
	c.rounds[i].levels = levels
}
