package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/peers/result"
)

// awayBy is how much longer a round trip takes in the mode "away".
const awayBy = time.Millisecond

// errNoJob is of a window that was too short for anything to end in it.
var errNoJob = errors.New("no job ended in the window")

// shares are the levels of load, of each entry's own saturation.
var shares = []float64{0.1, 0.5, 0.8}

// contender is an entry in one mode.
type contender struct {
	*entry
	out result.Entry
}

// mode measures the entries of these names (nil: all) under the same conditions: a sweep of each, then rounds in
// which each is started afresh, in another order each time.
func (b *bench) mode(ctx context.Context, aof string, distance time.Duration, names []string) error {
	begin := time.Now()
	m := result.Mode{AOF: aof, AwayUS: distance.Microseconds(), WarmUpMS: b.warmUp(), MeasureMS: b.window.Milliseconds()}
	var contenders []*contender
	all := entries()
	for i := range all {
		e := &all[i]
		if names != nil && !slices.Contains(names, e.name) || !b.wanted(e.name) {
			continue
		}
		if why := b.missing[e.program]; why != "" {
			m.Missing = append(m.Missing, result.Missing{Name: e.name, Why: why})
			continue
		}
		c := &contender{entry: e, out: result.Entry{Name: e.name, Version: b.versionOf(ctx, e.program)}}
		if err := b.sweep(ctx, c, aof, distance); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			m.Missing = append(m.Missing, result.Missing{Name: e.name, Why: err.Error()})
			b.say("%s is left out: %s", e.name, err)
			continue
		}
		contenders = append(contenders, c)
	}
	if names != nil {
		m.Missing = slices.DeleteFunc(m.Missing, func(x result.Missing) bool { return !slices.Contains(names, x.Name) })
	}
	// Levels are shares of the median of all rounds, so all come before the first of them.
	for _, measured := range []func(c *contender, r int) error{
		func(c *contender, _ int) error { return b.saturation(ctx, c, aof, distance) },
		func(c *contender, r int) error { return b.levels(ctx, c, r, aof, distance) },
	} {
		for r := range b.rounds {
			for _, i := range rand.Perm(len(contenders)) {
				c := contenders[i]
				if err := measured(c, r); err != nil {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					m.Missing = append(m.Missing, result.Missing{Name: c.name, Why: fmt.Sprintf("round %d: %s", r+1, err)})
					b.say("%s, round %d: %s", c.name, r+1, err)
				}
			}
		}
	}
	for _, c := range contenders {
		c.out.Rounds = slices.DeleteFunc(c.out.Rounds, func(r result.Round) bool { return len(r.Levels) == 0 })
		if len(c.out.Rounds) > 0 {
			c.out.Thin()
			m.Entries = append(m.Entries, c.out)
		}
	}
	m.Run = b.runNow(begin)
	b.results.PutMode(m)
	return nil
}

func (b *bench) wanted(name string) bool {
	if b.peers == "" {
		return true
	}
	return slices.ContainsFunc(strings.Split(b.peers, ","), func(word string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(word)) })
}

func (b *bench) warmUp() int64 { return max(b.window.Milliseconds()/5, 200) }

// sweep measures the throughput of each setting; settings that differ only in how jobs are submitted share a start.
func (b *bench) sweep(ctx context.Context, c *contender, aof string, distance time.Duration) error {
	settings := c.grouped(b.short)
	var failures error
	for i := 0; i < len(settings); {
		n := 1
		for i+n < len(settings) && sameProcesses(settings[i], settings[i+n]) {
			n++
		}
		if err := b.sweepGroup(ctx, c, settings[i:i+n], aof, distance); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failures = errors.Join(failures, err)
		}
		i += n
	}
	best := slices.MaxFunc(c.out.Sweep, func(a, z result.Point) int { return cmp.Compare(a.JobsPerSecond, z.JobsPerSecond) })
	if best.JobsPerSecond == 0 {
		return failures
	}
	c.out.Best = best.Setting
	b.say("%s: best of %d settings: worker %q, load %q, %d in flight, %d a call: %s jobs/s", c.name, len(settings), best.Worker, best.Load, best.InFlight, best.Batch, measure.Thousands(best.JobsPerSecond))
	return nil
}

// grouped is the sweep, in groups that share processes.
func (e *entry) grouped(short bool) []result.Setting {
	s := e.sweep
	if short {
		s = s[:min(len(s), shortSweep)]
	}
	s = slices.Clone(s)
	slices.SortStableFunc(s, func(a, z result.Setting) int {
		return cmp.Or(cmp.Compare(a.Worker, z.Worker), cmp.Compare(a.Load, z.Load), cmp.Compare(a.Processes, z.Processes))
	})
	return s
}

func sameProcesses(a, z result.Setting) bool {
	return a.Worker == z.Worker && a.Load == z.Load && a.Processes == z.Processes
}

func (b *bench) sweepGroup(ctx context.Context, c *contender, settings []result.Setting, aof string, distance time.Duration) (err error) {
	fail := func(err error) error {
		for _, s := range settings {
			if !slices.ContainsFunc(c.out.Sweep, func(p result.Point) bool { return p.Setting == s }) {
				c.out.Sweep = append(c.out.Sweep, result.Point{Setting: s, Error: err.Error()})
			}
		}
		return err
	}
	s, err := b.start(ctx, shape{entry: c.entry, setting: settings[0], aof: aof, away: distance})
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := b.heat(ctx, s, settings[0]); err != nil {
		return fail(err)
	}
	window := max(b.window.Milliseconds()*3/5, 300)
	for _, setting := range settings {
		f, err := s.ask(ctx, load.Request{Loop: load.Closed, InFlight: setting.InFlight, Batch: setting.Batch, WarmUpMS: b.warmUp(), MeasureMS: window})
		if err != nil {
			return fail(err)
		}
		c.out.Sweep = append(c.out.Sweep, result.Point{Setting: setting, JobsPerSecond: f.JobsPerSecond, ResultP50: f.Result.P50})
	}
	return nil
}

// saturation starts a peer afresh and measures it at saturation.
func (b *bench) saturation(ctx context.Context, c *contender, aof string, distance time.Duration) (err error) {
	s, err := b.start(ctx, shape{entry: c.entry, setting: c.out.Best, aof: aof, away: distance})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var r result.Round
	if err := b.saturate(ctx, s, c.out.Best, &r); err != nil {
		return err
	}
	if c.yardstick {
		if err := b.one(ctx, s, &r); err != nil {
			return err
		}
	}
	c.out.Rounds = append(c.out.Rounds, r)
	b.say("%s: %s jobs/s", c.name, measure.Thousands(r.Saturation.JobsPerSecond))
	return nil
}

// single is the share of the load up to which each job is submitted by a call of its own: so little is there to gather.
const single = 0.1

// levels starts a peer afresh and measures it at shares of its saturation, for one of its rounds.
func (b *bench) levels(ctx context.Context, c *contender, round int, aof string, distance time.Duration) (err error) {
	if round >= len(c.out.Rounds) {
		return nil // one that failed, which is said
	}
	s, err := b.start(ctx, shape{entry: c.entry, setting: c.out.Best, aof: aof, away: distance})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if _, err := b.heat(ctx, s, c.out.Best); err != nil {
		return err
	}
	full := c.out.Throughput()
	into := &c.out.Rounds[round]
	for _, share := range shares {
		rate, batch := full*share, c.out.Best.Batch
		if share <= single {
			batch = 1
		}
		f, err := s.ask(ctx, load.Request{Loop: load.Open, Rate: rate, InFlight: c.out.Best.InFlight, Batch: batch, WarmUpMS: b.warmUp(), MeasureMS: b.window.Milliseconds()})
		if err != nil {
			into.Levels = nil
			return fmt.Errorf("at %.0f %%: %w", share*100, err)
		}
		into.Levels = append(into.Levels, result.Level{Share: share, Rate: measure.Rounded(rate), Figures: *f})
	}
	b.say("%s: result at 10 %%: %s, at 80 %%: %s", c.name, into.Levels[0].Result.Words(), into.Levels[len(into.Levels)-1].Result.Words())
	return nil
}

// saturate measures a closed loop, and what the processes spent on it.
func (b *bench) saturate(ctx context.Context, s *system, setting result.Setting, r *result.Round) error {
	request, err := b.heat(ctx, s, setting)
	if err != nil {
		return err
	}
	watch, err := b.watch(ctx, s)
	if err != nil {
		return err
	}
	request.WarmUpMS = b.warmUp() // or else the first jobs of all callers count that the last do not
	f, err := s.ask(ctx, request)
	if err != nil {
		return err
	}
	if f.Jobs == 0 {
		return errNoJob
	}
	r.Saturation = *f
	return watch(ctx, f.Ended, r)
}

// heat has a fresh system do the load for a whole window that does not count: pools fill, and what is compiled
// while it runs is compiled.
func (b *bench) heat(ctx context.Context, s *system, setting result.Setting) (load.Request, error) {
	r := load.Request{Loop: load.Closed, InFlight: setting.InFlight, Batch: setting.Batch, MeasureMS: b.window.Milliseconds()}
	_, err := s.ask(ctx, r)
	return r, err
}

// watch begins to look at processor times; the function that it returns ends that.
func (b *bench) watch(ctx context.Context, s *system) (func(context.Context, int64, *result.Round) error, error) {
	before, cpuErr := s.cpu()
	redisBefore, err := s.redisSeconds(ctx)
	begin := time.Now()
	return func(ctx context.Context, jobs int64, r *result.Round) error {
		took := time.Since(begin)
		redisAfter, err := s.redisSeconds(ctx)
		if err != nil {
			return err
		}
		r.RedisBusy = (redisAfter - redisBefore) / took.Seconds()
		after, err := s.cpu()
		if errors.Join(cpuErr, err) != nil || jobs == 0 {
			return nil // only some systems tell
		}
		for _, name := range []string{"load", "replicas", "workers", "redis"} {
			if v := after[name] - before[name]; v > 0 {
				r.CPU = append(r.CPU, result.CPU{Process: name, UsPerJob: measure.Rounded(v * 1e6 / float64(jobs))})
			}
		}
		return nil
	}, err
}

func (s *system) redisSeconds(ctx context.Context) (float64, error) {
	if s.stats == nil {
		return 0, nil
	}
	stat, err := measure.ReadRedisStat(ctx, s.stats)
	return stat.CPUSeconds, err
}

// one measures bare round trips, and jobs one at a time.
func (b *bench) one(ctx context.Context, s *system, r *result.Round) error {
	window := max(b.window.Milliseconds()/3, 300)
	f, err := s.ask(ctx, load.Request{Loop: load.Bare, MeasureMS: window})
	if err != nil {
		return err
	}
	r.Bare = f.Bare
	r.One, err = s.ask(ctx, load.Request{Loop: load.Closed, InFlight: 1, WarmUpMS: 100, MeasureMS: window})
	return err
}
