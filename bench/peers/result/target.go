package result

import (
	"fmt"
	"slices"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
)

// Target is one promise and what was measured of it.
type Target struct {
	What     string
	Limit    string
	Measured string
	// Met says nothing where Known is false: something that it needs was not measured.
	Met, Known bool
}

// The shares of load that targets speak of.
const (
	low  = 0.1
	high = 0.8
)

// Targets are what the scheduler must reach beside its peers.
func (r *Results) Targets() []Target {
	plain, always, away := r.Mode("off", 0), r.Mode("always", 0), r.Mode("off", 1000)
	ours, asynq := plain.Entry(InProcess), plain.Entry(Asynq)
	out := []Target{
		times("end to end in process, against asynq", 4, throughput(ours), throughput(asynq)),
		times("end to end over WebSocket with batch frames, against asynq", 2.5, throughput(plain.Entry(Batches)), throughput(asynq)),
		times("end to end over WebSocket with single frames, against asynq", 1.5, throughput(plain.Entry(WebSocket)), throughput(asynq)),
		r.redisTime(),
		r.overBare("time to assign at 10 % load, p50 / that of a bare EVALSHA", ours, low, 2, func(t *load.Times) int64 { return t.P50 }),
		r.overBare("time to assign at 10 % load, p99 / that of a bare EVALSHA", ours, low, 5, func(t *load.Times) int64 { return t.P99 }),
		oneAtATime(ours),
	}
	out = append(out, assignAtHigh(plain, ours)...)
	out = append(out,
		times("end to end in process with the append-only file `always`, against asynq", 3, throughput(always.Entry(InProcess)), throughput(always.Entry(Asynq))),
		r.growth(),
		assignAway(away.Entry(InProcess)),
		times("end to end 1 ms away from Redis, against asynq", 4, throughput(away.Entry(InProcess)), throughput(away.Entry(Asynq))),
	)
	return out
}

func throughput(e *Entry) float64 {
	if e == nil {
		return 0
	}
	return e.Throughput()
}

// times is a target of a ratio; 0 is what was not measured.
func times(what string, limit, a, z float64) Target {
	t := Target{What: what, Limit: fmt.Sprintf("at least %g times", limit)}
	if a == 0 || z == 0 {
		return t
	}
	t.Known, t.Met = true, a/z >= limit
	t.Measured = fmt.Sprintf("%.2f times (%s and %s jobs/s)", a/z, measure.Thousands(a), measure.Thousands(z))
	return t
}

func (r *Results) redisTime() Target {
	const limit = 12.0
	t := Target{What: "Redis time a job, all scripts and stream reads, at saturation with 100 nodes", Limit: fmt.Sprintf("at most %g us", limit)}
	if r.Limit == nil {
		return t
	}
	us := r.Limit.Redis.ScriptPerJob + r.Limit.Redis.ReadPerJob
	t.Known, t.Met = true, us <= limit
	t.Measured = fmt.Sprintf("%.1f us", us)
	return t
}

// overBare is a ratio of percentiles of the same window, the median of the rounds.
func (r *Results) overBare(what string, e *Entry, share, limit float64, of func(*load.Times) int64) Target {
	t := Target{What: what, Limit: fmt.Sprintf("at most %g times", limit)}
	if e == nil {
		return t
	}
	ratio, ok := e.At(share, func(l *Level) (float64, bool) {
		if l.Assign == nil || l.Bare == nil || of(l.Bare) == 0 {
			return 0, false
		}
		return float64(of(l.Assign)) / float64(of(l.Bare)), true
	})
	if !ok {
		return t
	}
	a, _ := e.At(share, func(l *Level) (float64, bool) { return timesOf(l.Assign, of) })
	z, _ := e.At(share, func(l *Level) (float64, bool) { return timesOf(l.Bare, of) })
	t.Known, t.Met = true, ratio <= limit
	t.Measured = fmt.Sprintf("%.2f times (%s and %s beside the load)", ratio, measure.Micros(int64(a)), measure.Micros(int64(z)))
	if idle := e.median(func(r *Round) (float64, bool) { return timesOf(r.Bare, of) }); idle > 0 {
		t.Measured += fmt.Sprintf("; one with nothing beside takes %s", measure.Micros(int64(idle)))
	}
	return t
}

func timesOf(t *load.Times, of func(*load.Times) int64) (float64, bool) {
	if t == nil {
		return 0, false
	}
	return float64(of(t)), true
}

func oneAtATime(e *Entry) Target {
	const limit = 5.0
	t := Target{What: "time to result of a job that does nothing, one at a time, in process / a bare EVALSHA, p50", Limit: fmt.Sprintf("at most %g times", limit)}
	if e == nil {
		return t
	}
	var ratios, ones, bares []float64
	for i := range e.Rounds {
		if r := &e.Rounds[i]; r.One != nil && r.Bare != nil && r.Bare.P50 > 0 {
			one, bare := float64(r.One.Result.P50), float64(r.Bare.P50)
			ratios, ones, bares = append(ratios, one/bare), append(ones, one), append(bares, bare)
		}
	}
	if len(ratios) == 0 {
		return t
	}
	ratio := Median(ratios)
	t.Known, t.Met = true, ratio <= limit
	t.Measured = fmt.Sprintf("%.2f times (%.2f to %.2f in the rounds; %s and %s with nothing beside)", ratio, slices.Min(ratios), slices.Max(ratios),
		measure.Micros(int64(Median(ones))), measure.Micros(int64(Median(bares))))
	return t
}

// assignAtHigh is held against a bound, and against every peer's time to start.
func assignAtHigh(m *Mode, ours *Entry) []Target {
	const limit = 10_000
	bound := Target{What: "p99 time to assign at 80 % load", Limit: "at most 10 ms"}
	beside := Target{What: "p99 time to assign at 80 % load, against every peer's time to start", Limit: "below the least of them"}
	if ours == nil {
		return []Target{bound, beside}
	}
	own, ok := ours.At(high, func(l *Level) (float64, bool) { return timesOf(l.Assign, func(t *load.Times) int64 { return t.P99 }) })
	if !ok {
		return []Target{bound, beside}
	}
	bound.Known, bound.Met, bound.Measured = true, own <= limit, measure.Micros(int64(own))
	var least float64
	name := ""
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Name == InProcess || e.Name == WebSocket || e.Name == Batches {
			continue
		}
		if v, ok := e.At(high, func(l *Level) (float64, bool) { return float64(l.Start.P99), l.Start.Count > 0 }); ok && (name == "" || v < least) {
			least, name = v, e.Name
		}
	}
	if name != "" {
		beside.Known, beside.Met = true, own < least
		beside.Measured = fmt.Sprintf("%s, the least is %s of %s", measure.Micros(int64(own)), measure.Micros(int64(least)), name)
	}
	return []Target{bound, beside}
}

// growth is how Redis' time for a job that is alone grows from 100 nodes to 10,000.
func (r *Results) growth() Target {
	const limit = 1.2
	t := Target{What: "Redis time a job with batches of one, 10,000 nodes / 100", Limit: fmt.Sprintf("at most %g times", limit)}
	few, many := r.Scale.nodes(100, Alone), r.Scale.nodes(10_000, Alone)
	if few == nil || many == nil || few.RedisUs == 0 {
		return t
	}
	ratio := many.RedisUs / few.RedisUs
	t.Known, t.Met = true, ratio <= limit
	t.Measured = fmt.Sprintf("%.2f times (%.1f and %.1f us)", ratio, many.RedisUs, few.RedisUs)
	if few, many := r.Scale.nodes(100, Saturated), r.Scale.nodes(10_000, Saturated); few != nil && many != nil {
		t.Measured += fmt.Sprintf("; in batches %.1f and %.1f us", many.RedisUs, few.RedisUs)
	}
	return t
}

func (s *Scale) nodes(n int, how string) *ScalePoint {
	if s == nil {
		return nil
	}
	for i := range s.Points {
		p := &s.Points[i]
		if p.What == "nodes" && p.Value == n && p.Load == how && p.AwayUS == 0 && p.Error == "" {
			return p
		}
	}
	return nil
}

func assignAway(e *Entry) Target {
	const limit = 1300
	t := Target{What: "time to assign at 10 % load, 1 ms away from Redis, p50", Limit: "at most 1.3 ms"}
	if e == nil {
		return t
	}
	v, ok := e.At(low, func(l *Level) (float64, bool) { return timesOf(l.Assign, func(t *load.Times) int64 { return t.P50 }) })
	if !ok {
		return t
	}
	t.Known, t.Met, t.Measured = true, v <= limit, measure.Micros(int64(v))
	p50 := func(t *load.Times) int64 { return t.P50 }
	beside, _ := e.At(low, func(l *Level) (float64, bool) { return timesOf(l.Bare, p50) })
	idle := e.median(func(r *Round) (float64, bool) { return timesOf(r.Bare, p50) })
	if beside > 0 && idle > 0 {
		t.Measured += fmt.Sprintf("; a bare EVALSHA takes %s beside the load and %s with nothing beside", measure.Micros(int64(beside)), measure.Micros(int64(idle)))
	}
	return t
}
