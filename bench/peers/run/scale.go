package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/plot"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	scaleInFlight = 512
	scaleMasters  = 3
	scaleRounds   = 3
	// scaleProcess is how many nodes a process has that puts each of them at a distance: it may not have more files.
	scaleProcess = 2500
)

// The loads of a scalePoint: one job at a time, so batches of one, and scaleInFlight jobs.
const (
	alone     = "alone"
	saturated = "saturated"
)

// scalePoint is one shape of a system and what a job costs in it.
type scalePoint struct {
	what     string // nodes, replicas or cells
	value    int
	load     string
	distance time.Duration

	// redisUs is the time inside EVALSHA and XREAD of all servers, cpuUs that of their main threads.
	redisUs, cpuUs, jobsPerSecond, assignP50, resultP50, resultP99 float64
}

// scale measures what a job costs as the system grows.
func (b *bench) scale(ctx context.Context) error {
	b.Result.Servers = b.redis + ", append-only file off"
	b.Say("Nodes: in process, nodes of one connection each in one process, no heartbeats, 4,096 slots altogether or one a node. Replicas: processes, WebSocket, 64 jobs a frame, 16 nodes. Cells: on a cluster of three masters, in process, 48 nodes.")
	b.Say("Alone: one job at a time, so every call is for one job. Saturated: %d jobs in flight. Redis time is that inside EVALSHA and XREAD, of all servers; medians of three windows.", scaleInFlight)
	var points []*scalePoint
	add := func(what string, distance time.Duration, values []int, loads ...string) {
		for _, v := range values {
			for _, how := range loads {
				points = append(points, &scalePoint{what: what, value: v, load: how, distance: distance})
			}
		}
	}
	for _, distance := range []time.Duration{0, awayBy} {
		nodes, replicas := []int{10, 100, 1000, 10_000}, []int{1, 2, 3, 4}
		if b.Short && distance > 0 {
			nodes, replicas = []int{100}, []int{1}
		}
		add("nodes", distance, nodes, alone, saturated)
		add("replicas", distance, replicas, saturated)
		add("cells", distance, tool.Sized(b.Bench, []int{1, 2, 4, 8, 16}, []int{1, 16}), alone, saturated)
	}
	run := map[string]func(context.Context, *scalePoint) error{"nodes": b.scaleNodes, "replicas": b.scaleReplicas, "cells": b.scaleCells}
	table := result.Table{First: "System", Columns: []result.Column{
		{Name: "Redis time a job", Unit: result.Microseconds}, {Name: "CPU of Redis a job", Unit: result.Microseconds}, {Name: "jobs", Unit: result.PerSecond},
		{Name: "submit to assign, p50", Unit: result.Microseconds}, {Name: "submit to result, p50 / p99", Unit: result.Microseconds},
	}}
	near := map[string]map[int]float64{alone: {}, saturated: {}}
	for _, p := range points {
		if err := run[p.what](ctx, p); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.leftOut(p.words(), err)
			continue
		}
		if p.what == "nodes" && p.distance == 0 {
			near[p.load][p.value] = p.redisUs
		}
		b.Progress("%s: %.2f us a job in Redis, %s jobs/s", p.words(), p.redisUs, measure.Thousands(p.jobsPerSecond))
		table.Rows = append(table.Rows, result.Row{Name: p.words(), Figures: []result.Figure{{p.redisUs}, {p.cpuUs}, {p.jobsPerSecond}, {p.assignP50}, {p.resultP50, p.resultP99}}})
	}
	b.Result.Tables = []result.Table{table}
	if few, many := near[alone][100], near[alone][10_000]; few > 0 && many > 0 {
		b.target("Redis time a job with batches of one, 10,000 nodes / 100", result.Times, result.AtMost, 1.2, result.Figure{measure.FourFigures(many / few)},
			fmt.Sprintf("%.1f and %.1f us; in batches %.1f and %.1f us", many, few, near[saturated][10_000], near[saturated][100]))
	}
	return b.draw("peers-nodes.svg", &plot.Figure{
		Title: "Redis time a job by number of nodes",
		X:     plot.Axis{Label: "nodes", Log: true}, Y: plot.Axis{Label: "microseconds in EVALSHA and XREAD"},
		Lines: []plot.Line{{Name: alone, Points: pointsOf(near[alone])}, {Name: saturated, Points: pointsOf(near[saturated])}},
	})
}

func (p *scalePoint) words() string {
	text := measure.Thousands(float64(p.value)) + " " + p.what
	if p.value == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	text += ", " + p.load
	if p.distance > 0 {
		text += ", " + measure.Micros(p.distance.Microseconds()) + " away"
	}
	return text
}

func (p *scalePoint) request() load.Request {
	if p.load == alone {
		return load.Request{Loop: load.Closed, InFlight: 1}
	}
	return load.Request{Loop: load.Closed, InFlight: scaleInFlight}
}

// scaleNodes has nodes of one connection each, which send no heartbeats: what is counted is jobs.
func (b *bench) scaleNodes(ctx context.Context, p *scalePoint) error {
	processes := 1
	if p.distance > 0 {
		processes = max(1, p.value/scaleProcess)
	}
	return b.scaleOn(ctx, p, p.request(), system.Shape{
		Worker:    fmt.Sprintf("-nodes %d -slots %d -lean -process %s", p.value/processes, max(1, 4096/p.value), system.ThisProcess),
		Processes: processes, WorkersAway: true,
	})
}

// scaleReplicas has replicas as processes, and their clients submit batches: that loads replicas the most.
func (b *bench) scaleReplicas(ctx context.Context, p *scalePoint) error {
	r := p.request()
	r.Batch = 64
	return b.scaleOn(ctx, p, r, system.Shape{Worker: "-nodes 16", Load: "-sessions 8", Schedulers: p.value})
}

func (b *bench) scaleOn(ctx context.Context, p *scalePoint, r load.Request, shape system.Shape) (err error) {
	shape.Program, shape.AOF, shape.Away = system.Freeslot, system.AOFOff, p.distance
	s, err := system.Start(ctx, b.programs, shape)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	return b.scaleWindows(ctx, p, r, s.Load, []rueidis.Client{s.Redis.Client})
}

// scaleCells spreads cells over a cluster. The first replica fixes the number of cells; nodes come before it here.
func (b *bench) scaleCells(ctx context.Context, p *scalePoint) (err error) {
	c, err := system.StartCluster(ctx, scaleMasters, p.distance)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	flags := []string{"-redis", c.URL(), "-cells", strconv.Itoa(p.value)}
	start := func(role string, args ...string) (*measure.Child, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
		defer cancel()
		return measure.StartChild(ctx, role, b.programs.Command(system.Freeslot, append(append([]string{role}, args...), flags...)...), load.Ready)
	}
	nodes, err := start("worker", "-nodes", "48", "-slots", "128")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.End()) }()
	generator, err := start("load")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, generator.End()) }()
	return b.scaleWindows(ctx, p, p.request(), generator, c.Clients())
}

// scaleWindows takes medians of a few windows.
func (b *bench) scaleWindows(ctx context.Context, p *scalePoint, r load.Request, generator *measure.Child, stats []rueidis.Client) error {
	r.MeasureMS = b.warmUp()
	if _, err := system.Ask(ctx, generator, r); err != nil {
		return err
	}
	r.MeasureMS = max(b.window.Milliseconds()/2, 300)
	var redis, cpu, rate, assign, p50, p99 []float64
	for range scaleRounds {
		usBefore, cpuBefore, err := busy(ctx, stats)
		if err != nil {
			return err
		}
		f, err := system.Ask(ctx, generator, r)
		if err != nil {
			return err
		}
		if f.Jobs == 0 {
			return errNoJob
		}
		us, seconds, err := busy(ctx, stats)
		if err != nil {
			return err
		}
		n := float64(f.Ended)
		redis, cpu, rate = append(redis, (us-usBefore)/n), append(cpu, (seconds-cpuBefore)*1e6/n), append(rate, f.JobsPerSecond)
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
	return nil
}

// busy adds up the servers' time in scripts and stream reads, and that of their main threads.
func busy(ctx context.Context, clients []rueidis.Client) (us, seconds float64, _ error) {
	for _, c := range clients {
		stat, err := measure.ReadRedisStat(ctx, c)
		if err != nil {
			return 0, 0, err
		}
		seconds += stat.CPUSeconds
		us += stat.Commands["evalsha"].Usec + stat.Commands["xread"].Usec
	}
	return us, seconds, nil
}
