package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch/presence"
)

const (
	limitNodes = 100
	// limitInFlight is 40 for each node, in calls of limitBatch: with fewer a node has little to report in a call.
	limitInFlight = 4096
	limitBatch    = 64
	// sampleSize bounds the slow log, and so the calls of a sample: one that does not fit is taken again, in half the time.
	sampleSize     = 200_000
	sampleWindow   = 500 * time.Millisecond
	sampleWarmUp   = 200 * time.Millisecond
	shortestSample = 10 * time.Millisecond
	aloneWindow    = time.Second
)

// limit measures where Redis' time goes at saturation with many nodes.
func (b *bench) limit(ctx context.Context) (err error) {
	b.Result.Servers = b.redis + ", append-only file off"
	e := entries()[0]
	s, err := b.start(ctx, mode{aof: system.AOFOff}, &e, one(fmt.Sprintf("-nodes %d", limitNodes), "", limitInFlight, limitBatch))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	full := load.Request{Loop: load.Closed, InFlight: limitInFlight, Batch: limitBatch}
	own, err := b.limitSaturated(ctx, s, full)
	if err != nil {
		return err
	}
	b.Say("By script: number and time of calls come from a sample in which Redis logs every call, which makes each a little longer; its clock counts in whole microseconds. Commands that scripts call are listed too; their time is part of the scripts'.")
	full.MeasureMS = sampleWindow.Milliseconds()
	saturated, err := b.sample(ctx, s, full)
	if err != nil {
		return err
	}
	alone, err := b.sample(ctx, s, load.Request{Loop: load.Closed, InFlight: 1, MeasureMS: aloneWindow.Milliseconds()})
	if err != nil {
		return err
	}
	b.Result.Tables = []result.Table{callTable(saturated), own, tripTable(alone, saturated)}
	return nil
}

func (b *bench) limitSaturated(ctx context.Context, s *system.System, r load.Request) (own result.Table, _ error) {
	r.MeasureMS = b.warmUp()
	if _, err := s.Ask(ctx, r); err != nil {
		return own, err
	}
	before, err := s.RedisStat(ctx)
	if err != nil {
		return own, err
	}
	begin := time.Now()
	r.MeasureMS = b.window.Milliseconds()
	f, err := s.Ask(ctx, r)
	if err != nil {
		return own, err
	}
	took := time.Since(begin)
	after, err := s.RedisStat(ctx)
	if err != nil {
		return own, err
	}
	cost := after.Cost(before, f.Ended)
	b.Say("In process, %d nodes, %s jobs/s at saturation. Redis' main thread is busy for %.0f %% of the time, %.1f us a job, of which %.1f us in scripts.",
		limitNodes, measure.Thousands(f.JobsPerSecond), 100*(after.CPUSeconds-before.CPUSeconds)/took.Seconds(), cost.CPUPerJob, cost.ScriptPerJob)
	b.Target(fmt.Sprintf("Redis time a job, all scripts and stream reads, at saturation with %d nodes", limitNodes),
		result.Microseconds, result.AtMost, 12, cost.ScriptPerJob+cost.ReadPerJob)
	own = result.Table{First: "Redis' own counters", Columns: []result.Column{{Name: "calls a job"}, {Name: "Redis time a job", Unit: result.Microseconds}}}
	for _, c := range cost.Commands {
		own.Rows = append(own.Rows, result.Row{Name: c.Command, Figures: result.Figures(c.CallsPerJob, c.TimePerJob)})
	}
	return own, nil
}

// call is a script or a command.
type call struct {
	name           string
	count          int // in the sample
	us             float64
	callsPerJob    float64
	redisUsPerCall float64
}

var errLogFull = errors.New("the slow log was full")

// sample counts the calls of one load by script. It reads Redis' slow log with every call in it, which costs time: it
// measures no throughput.
func (b *bench) sample(ctx context.Context, s *system.System, r load.Request) ([]call, error) {
	for {
		calls, err := b.sampleOnce(ctx, s, r)
		if !errors.Is(err, errLogFull) || r.MeasureMS < 2*shortestSample.Milliseconds() {
			return calls, err
		}
		r.MeasureMS /= 2
	}
}

func (b *bench) sampleOnce(ctx context.Context, s *system.System, r load.Request) ([]call, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	heat := r
	heat.MeasureMS = sampleWarmUp.Milliseconds()
	if _, err := s.Ask(ctx, heat); err != nil {
		return nil, err
	}
	do := func(args ...string) rueidis.RedisResult {
		return s.Redis.Client.Do(ctx, s.Redis.Client.B().Arbitrary(args...).Build())
	}
	for _, args := range [][]string{
		{"CONFIG", "SET", "slowlog-max-len", fmt.Sprint(sampleSize)}, {"CONFIG", "SET", "slowlog-log-slower-than", "0"}, {"SLOWLOG", "RESET"},
	} {
		if err := do(args...).Error(); err != nil {
			return nil, fmt.Errorf("%q: %w", args, err)
		}
	}
	f, err := s.Ask(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := do("CONFIG", "SET", "slowlog-log-slower-than", "-1").Error(); err != nil {
		return nil, err
	}
	entries, err := do("SLOWLOG", "GET", "-1").ToArray()
	if err != nil {
		return nil, fmt.Errorf("read slow log: %w", err)
	}
	if len(entries) >= sampleSize {
		return nil, errLogFull
	}
	names := cell.Scripts().Names()
	maps.Copy(names, presence.Scripts().Names())
	return countCalls(entries, names, max(f.Ended, 1))
}

// countCalls adds up slow log entries: [id, moment, microseconds, [command, argument, ...], ...]. names are of scripts, by
// their hashes. Those that took the most time come first.
func countCalls(entries []rueidis.RedisMessage, names map[string]string, jobs int64) ([]call, error) {
	sums := make(map[string]call)
	for i := range entries {
		parts, err := entries[i].ToArray()
		if err != nil || len(parts) < 4 {
			return nil, fmt.Errorf("slow log entry %d: %w", i, cmp.Or(err, errors.New("too short")))
		}
		us, err := parts[2].AsInt64()
		if err != nil {
			return nil, err
		}
		args, err := parts[3].AsStrSlice()
		if err != nil {
			return nil, err
		}
		if name := callName(args, names); name != "" {
			c := sums[name]
			sums[name] = call{name: name, count: c.count + 1, us: c.us + float64(us)}
		}
	}
	calls := slices.Collect(maps.Values(sums))
	for i := range calls {
		c := &calls[i]
		c.callsPerJob, c.redisUsPerCall = float64(c.count)/float64(jobs), c.us/float64(c.count)
	}
	slices.SortFunc(calls, func(a, z call) int { return cmp.Or(cmp.Compare(z.us, a.us), cmp.Compare(a.name, z.name)) })
	return calls, nil
}

// callName leaves out what the measuring itself calls.
func callName(args []string, names map[string]string) string {
	command := strings.ToLower(args[0])
	switch command {
	case "config", "slowlog", "info", "evalsha_ro", "ping", "client", "hello":
		return ""
	case "evalsha", "eval":
		if len(args) > 1 && names[args[1]] != "" {
			return names[args[1]] + ".lua"
		}
		return "another script"
	}
	return command
}

func callTable(calls []call) result.Table {
	t := result.Table{First: "Call", Columns: []result.Column{
		{Name: "calls a job"}, {Name: "Redis time a call", Unit: result.Microseconds}, {Name: "Redis time a job", Unit: result.Microseconds}, {Name: "calls in the sample"},
	}}
	for _, c := range calls {
		t.Rows = append(t.Rows, result.Row{Name: c.name, Figures: result.Figures(measure.FourFigures(c.callsPerJob), measure.FourFigures(c.redisUsPerCall),
			measure.FourFigures(c.callsPerJob*c.redisUsPerCall), float64(c.count))})
	}
	return t
}

// tripTable has the round trips that a job waits for. A read of a stream is under way before there is something to read.
func tripTable(alone, saturated []call) result.Table {
	perJob := func(calls []call, name string) float64 {
		for _, c := range calls {
			if c.name == name {
				return measure.FourFigures(c.callsPerJob)
			}
		}
		return 0
	}
	t := result.Table{First: "Round trips a job", Columns: []result.Column{{Name: "alone"}, {Name: "at saturation"}}}
	for _, p := range []struct{ name, call string }{
		{"submit: record, slot and dispatch entry", "submit.lua"},
		{"wait, where no slot is free: queue and hand-over", "enqueue.lua"},
		{"dispatch and reply: reads of streams by agents and replicas", "xread"},
		{"complete: result, slot freed, reply", "complete.lua"},
		{"heartbeats, beside the jobs", "heartbeat.lua"},
	} {
		t.Rows = append(t.Rows, result.Row{Name: p.name, Figures: result.Figures(perJob(alone, p.call), perJob(saturated, p.call))})
	}
	return t
}
