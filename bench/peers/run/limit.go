package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/peers/result"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	limitNodes = 100
	// limitInFlight is 40 for each node, in calls of limitBatch: with fewer a node has little to tell in a call.
	limitInFlight = 4096
	limitBatch    = 64
	// sampleSize bounds the slow log, and so the calls of a sample: one that does not fit is taken again, in half the time.
	sampleSize    = 200_000
	sampleWindow  = 500 * time.Millisecond
	sampleWarmUp  = 200 * time.Millisecond
	shortestSense = 10 * time.Millisecond
	aloneWindow   = time.Second
)

// limit measures where Redis' time goes at saturation with many nodes, and how fast Redis could be.
func (b *bench) limit(ctx context.Context) (err error) {
	begin := time.Now()
	l := &result.Limit{Nodes: limitNodes}
	e := &entries()[0]
	setting := one(fmt.Sprintf("-nodes %d", limitNodes), "", limitInFlight, limitBatch)
	s, err := b.start(ctx, shape{entry: e, setting: setting, aof: aofOff})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := b.limitSaturated(ctx, s, setting, l); err != nil {
		return err
	}
	if err := b.profiles(ctx, s, setting, l); err != nil {
		return err
	}
	names := cell.Scripts().Names()
	saturated, err := b.sample(ctx, s, names, load.Request{Loop: load.Closed, InFlight: setting.InFlight, Batch: setting.Batch, MeasureMS: sampleWindow.Milliseconds()})
	if err != nil {
		return err
	}
	alone, err := b.sample(ctx, s, names, load.Request{Loop: load.Closed, InFlight: 1, MeasureMS: aloneWindow.Milliseconds()})
	if err != nil {
		return err
	}
	l.Calls, l.Phases = saturated, phases(alone, saturated)
	b.ceilings(ctx, l)
	l.Run = b.runNow(begin)
	b.results.Limit = l
	return nil
}

func (b *bench) limitSaturated(ctx context.Context, s *system, setting result.Setting, l *result.Limit) error {
	request := load.Request{Loop: load.Closed, InFlight: setting.InFlight, Batch: setting.Batch, MeasureMS: b.warmUp()}
	if _, err := s.ask(ctx, request); err != nil {
		return err
	}
	before, err := measure.ReadRedisStat(ctx, s.stats)
	if err != nil {
		return err
	}
	at := time.Now()
	request.MeasureMS = b.window.Milliseconds()
	f, err := s.ask(ctx, request)
	if err != nil {
		return err
	}
	took := time.Since(at)
	after, err := measure.ReadRedisStat(ctx, s.stats)
	if err != nil {
		return err
	}
	l.JobsPerSecond, l.Redis = f.JobsPerSecond, after.Cost(before, f.Ended)
	l.RedisBusy = (after.CPUSeconds - before.CPUSeconds) / took.Seconds()
	b.say("%s jobs/s with %d nodes, Redis' main thread busy for %.0f %%, %.1f us a job", measure.Thousands(l.JobsPerSecond), l.Nodes, l.RedisBusy*100, l.Redis.CPUPerJob)
	return nil
}

// profiles writes CPU profiles of the replica and of the agents under saturation.
func (b *bench) profiles(ctx context.Context, s *system, setting result.Setting, l *result.Limit) error {
	folder, err := filepath.Abs(b.artefacts)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	replica, agents := filepath.Join(folder, "replica.pprof"), filepath.Join(folder, "agents.pprof")
	ms := b.window.Milliseconds()
	asked := make(chan error, 1)
	go func() {
		answer, err := s.workers[0].Ask(ctx, fmt.Sprintf("profile %s %d", agents, ms))
		if err == nil && answer != "ok" {
			err = errors.New(answer)
		}
		asked <- err
	}()
	_, err = s.ask(ctx, load.Request{Loop: load.Closed, InFlight: setting.InFlight, Batch: setting.Batch, MeasureMS: ms, Profile: replica})
	if err := errors.Join(err, <-asked); err != nil {
		return err
	}
	l.Profiles = []string{filepath.Base(replica), filepath.Base(agents)}
	b.say("profiles of replica and agents in %s", b.artefacts)
	return errors.Join(b.summarize(ctx, replica), b.summarize(ctx, agents))
}

// summarize writes what a profile says most of beside the results, so that what the report says of it can be looked up.
func (b *bench) summarize(ctx context.Context, profile string) error {
	text, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-nodecount", "80", profile).Output()
	if err != nil {
		return fmt.Errorf("read profile: %w", err)
	}
	name := "profile-" + strings.TrimSuffix(filepath.Base(profile), ".pprof") + ".txt"
	return measure.WriteFile(filepath.Join(filepath.Dir(b.out), name), text)
}

var errLogFull = errors.New("the slow log was full")

// sample counts the calls of one load by script. It reads Redis' slow log with every call in it, which costs
// time: throughput is not measured here.
func (b *bench) sample(ctx context.Context, s *system, names map[string]string, r load.Request) ([]result.Call, error) {
	for {
		calls, err := b.sampleOnce(ctx, s, names, r)
		if !errors.Is(err, errLogFull) || r.MeasureMS < 2*shortestSense.Milliseconds() {
			return calls, err
		}
		r.MeasureMS /= 2
	}
}

func (b *bench) sampleOnce(ctx context.Context, s *system, names map[string]string, r load.Request) ([]result.Call, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	heat := r
	heat.MeasureMS = sampleWarmUp.Milliseconds()
	if _, err := s.ask(ctx, heat); err != nil {
		return nil, err
	}
	do := func(args ...string) rueidis.RedisResult {
		return s.stats.Do(ctx, s.stats.B().Arbitrary(args...).Build())
	}
	for _, args := range [][]string{
		{"CONFIG", "SET", "slowlog-max-len", fmt.Sprint(sampleSize)}, {"CONFIG", "SET", "slowlog-log-slower-than", "0"}, {"SLOWLOG", "RESET"},
	} {
		if err := do(args...).Error(); err != nil {
			return nil, fmt.Errorf("%q: %w", args, err)
		}
	}
	f, err := s.ask(ctx, r)
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
	calls, err := countCalls(entries, names)
	if err != nil {
		return nil, err
	}
	if len(entries) >= sampleSize {
		return nil, errLogFull
	}
	for i := range calls {
		calls[i].CallsPerJob = float64(calls[i].SampleCalls) / float64(max(f.Ended, 1))
		calls[i].UsPerJob = calls[i].UsPerCall * calls[i].CallsPerJob
	}
	slices.SortFunc(calls, func(a, z result.Call) int {
		return cmp.Or(cmp.Compare(z.UsPerJob, a.UsPerJob), cmp.Compare(a.Name, z.Name))
	})
	return calls, nil
}

// countCalls adds up slow log entries: [id, moment, microseconds, [command, argument, ...], ...].
func countCalls(entries []rueidis.RedisMessage, names map[string]string) ([]result.Call, error) {
	sums := make(map[string]*result.Call)
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
		name := callName(args, names)
		if name == "" {
			continue
		}
		if sums[name] == nil {
			sums[name] = &result.Call{Name: name}
		}
		sums[name].SampleCalls++
		sums[name].UsPerCall += float64(us)
	}
	var out []result.Call
	for _, c := range sums {
		c.UsPerCall /= float64(c.SampleCalls)
		out = append(out, *c)
	}
	return out, nil
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

// phases are the round trips that a job waits for. A read of a stream is under way before there is something to read.
func phases(alone, saturated []result.Call) []result.Phase {
	perJob := func(calls []result.Call, name string) float64 {
		for _, c := range calls {
			if c.Name == name {
				return c.CallsPerJob
			}
		}
		return 0
	}
	var out []result.Phase
	for _, p := range []struct{ name, call string }{
		{"submit: record, slot and dispatch entry", "submit.lua"},
		{"wait, where no slot is free: queue and hand-over", "enqueue.lua"},
		{"dispatch and reply: reads of streams by agents and replicas", "xread"},
		{"complete: result, slot freed, reply", "complete.lua"},
		{"heartbeats, beside the jobs", "heartbeat.lua"},
	} {
		out = append(out, result.Phase{Name: p.name, Alone: perJob(alone, p.call), Saturated: perJob(saturated, p.call)})
	}
	return out
}
