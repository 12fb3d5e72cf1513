package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/plot"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	scaleInFlight = 512
	scaleRounds   = 3
)

// The loads of a scalePoint: one job at a time, so batches of one, and scaleInFlight jobs.
const (
	alone     = "alone"
	saturated = "saturated"
)

// scalePoint is one shape of a system and what a job costs in it.
type scalePoint struct {
	what  string // nodes or replicas
	value int
	load  string

	// redisUs is the time inside EVALSHA and XREAD, cpuUs that of Redis' main thread.
	redisUs, cpuUs, jobsPerSecond, assignP50, resultP50, resultP99 float64
}

// scale measures what a job costs as the system grows.
func (b *bench) scale(ctx context.Context) {
	b.Result.Servers = b.redis + ", append-only file off"
	b.Say("Nodes: in process, nodes of one connection each in one process, no heartbeats, 4,096 slots altogether or one a node. Replicas: processes, WebSocket, 64 jobs a frame, 16 nodes.")
	b.Say("Alone: one job at a time, so every call is for one job. Saturated: %d jobs in flight. Redis time is that inside EVALSHA and XREAD; medians of three windows.", scaleInFlight)
	var points []*scalePoint
	for _, nodes := range []int{10, 100, 1000, 10_000} {
		points = append(points, &scalePoint{what: "nodes", value: nodes, load: alone}, &scalePoint{what: "nodes", value: nodes, load: saturated})
	}
	for replicas := range 4 {
		points = append(points, &scalePoint{what: "replicas", value: replicas + 1, load: saturated})
	}
	t := result.NewTable("System", "Redis time a job [us]", "CPU of Redis a job [us]", "jobs [/s]", "submit to assign, p50 [us]",
		"submit to result, p50 / p99 [us]")
	costs := map[string]map[int]float64{alone: {}, saturated: {}} // by nodes
	for _, p := range points {
		if !b.unlessFailed(ctx, p.words, func() { b.scaleOne(ctx, p) }) {
			continue
		}
		if p.what == "nodes" {
			costs[p.load][p.value] = p.redisUs
		}
		b.Progress("%s: %.2f us a job in Redis, %s jobs/s", p.words(), p.redisUs, measure.Thousands(p.jobsPerSecond))
		t.Add(p.words(), p.redisUs, p.cpuUs, p.jobsPerSecond, p.assignP50, result.Figure{p.resultP50, p.resultP99})
	}
	b.Result.Tables = []result.Table{t}
	if few, many := costs[alone][100], costs[alone][10_000]; few > 0 && many > 0 {
		b.target("Redis time a job with batches of one, 10,000 nodes / 100", result.Times, result.AtMost, 1.2,
			result.Figure{measure.FourFigures(many / few)},
			fmt.Sprintf("%.1f and %.1f us; in batches %.1f and %.1f us", many, few, costs[saturated][10_000], costs[saturated][100]))
	}
	b.Draw("peers-nodes.svg", &plot.Figure{
		Title: "Redis time a job by number of nodes",
		X:     plot.Axis{Label: "nodes", Log: true}, Y: plot.Axis{Label: "microseconds in EVALSHA and XREAD"},
		Lines: []plot.Line{{Name: alone, Points: pointsOf(costs[alone])}, {Name: saturated, Points: pointsOf(costs[saturated])}},
	})
}

func (p *scalePoint) words() string {
	text := measure.Thousands(p.value) + " " + p.what
	if p.value == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	return text + ", " + p.load
}

// scaleOne takes medians of a few windows. Nodes send no heartbeats, so that jobs alone are
// counted. Replicas are processes whose clients submit batches: that loads replicas the most.
func (b *bench) scaleOne(ctx context.Context, p *scalePoint) {
	shape := system.Shape{Program: system.Freeslot, AOF: system.AOFOff}
	shape.Worker = fmt.Sprintf("-nodes %d -slots %d -lean", p.value, max(1, 4096/p.value))
	r := load.Request{Loop: load.Closed, InFlight: scaleInFlight, MeasureMS: b.warmUp()}
	if p.what == "replicas" {
		shape.Worker, shape.Load, shape.Schedulers, r.Batch = "-nodes 16", "-sessions 8", p.value, 64
	}
	if p.load == alone {
		r.InFlight = 1
	}
	s := tool.Must(system.Start(ctx, b.programs, shape))
	defer tool.End(s.Stop)
	tool.Must(s.Ask(ctx, r))
	r.MeasureMS = max(b.window.Milliseconds()/2, 300)
	var redis, cpu, rate, assign, p50, p99 []float64
	for range scaleRounds {
		m := tool.Must(system.NewMeter(ctx, s.Redis))
		f := tool.Must(s.Ask(ctx, r))
		used := tool.Must(m.Spent(ctx))
		if f.Jobs == 0 {
			tool.Check(errNoJob)
		}
		cost := used.Cost(f.Ended)
		redis = append(redis, cost.ScriptPerJob+cost.ReadPerJob)
		cpu, rate = append(cpu, cost.CPUPerJob), append(rate, f.JobsPerSecond)
		p50, p99 = append(p50, float64(f.Result.P50)), append(p99, float64(f.Result.P99))
		if f.Assign != nil {
			assign = append(assign, float64(f.Assign.P50))
		}
	}
	for into, values := range map[*float64][]float64{
		&p.redisUs: redis, &p.cpuUs: cpu, &p.jobsPerSecond: rate, &p.assignP50: assign, &p.resultP50: p50, &p.resultP99: p99,
	} {
		*into = measure.FourFigures(measure.Median(values))
	}
}
