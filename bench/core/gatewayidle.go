package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
)

// gatewayIdle is what idle agents through gateways take.
type gatewayIdle struct {
	without, with          float64 // MiB, of all replicas
	connections            int     // of Redis
	online                 int64
	redis, gateways, beats float64 // percent of a core, and a second
	start                  time.Duration
}

// runGatewayIdle measures what agents with nothing to do take of their gateways and of Redis.
func runGatewayIdle(ctx context.Context, b *tool.Bench, program string) error {
	const replicas, processes = 2, 4
	count := tool.Sized(b, 10_000, 40)
	settle, window := tool.Sized(b, 10*time.Second, 100*time.Millisecond), tool.Sized(b, 30*time.Second, time.Second)
	b.Say("At rest: %s agents in %d processes, %d gateways; the figures are of %s, which begin %s after the last agent had registered. Memory: VmRSS of both replicas, the highest of a reading a second, less that without agents; what they know of the nodes counts. Redis' connections are all but this tool's. Redis: its main thread by INFO.",
		measure.Thousands(float64(count)), processes, replicas, window, settle)
	t := result.Table{First: measure.Thousands(float64(count)) + " idle agents", Columns: []result.Column{
		{Name: "online"},
		{Name: "replicas without", Unit: result.MiB},
		{Name: "with", Unit: result.MiB},
		{Name: "KiB an agent"},
		{Name: "Redis' connections"},
		{Name: "Redis' main thread", Unit: result.Percent},
		{Name: "both replicas, of a core", Unit: result.Percent},
		{Name: "scripts", Unit: result.PerSecond},
		{Name: "start of all", Unit: result.Seconds},
	}}
	for _, kind := range []struct {
		name   string
		secure bool
		limit  float64
	}{{"plain", false, 40}, {"TLS", true, 64}} {
		b.Progress("%s agents at rest, %s", measure.Thousands(float64(count)), kind.name)
		g, err := newGateways(ctx, b, program, replicas, kind.secure)
		if err != nil {
			return err
		}
		m, err := g.measureIdle(ctx, count/processes, processes, settle, window)
		if err := errors.Join(err, g.stop()); err != nil {
			return err
		}
		each := (m.with - m.without) * 1024 / float64(count)
		t.Rows = append(t.Rows, result.Row{Name: kind.name, Figures: result.Figures(float64(m.online), measure.FourFigures(m.without), measure.FourFigures(m.with),
			measure.FourFigures(each), float64(m.connections), measure.FourFigures(m.redis), measure.FourFigures(m.gateways), measure.FourFigures(m.beats), measure.FourFigures(m.start.Seconds()))})
		of := fmt.Sprintf("%s idle agents by gateway, %s: ", measure.Thousands(float64(count)), kind.name)
		b.Target(of+"KiB an agent", result.Number, result.AtMost, kind.limit, each)
		b.Target(of+"Redis' connections", result.Number, result.AtMost, 20, float64(m.connections))
		b.Target(of+"Redis' main thread", result.Percent, result.AtMost, 15, m.redis)
		b.Target(of+"online in the end", result.Number, result.Exactly, float64(count), float64(m.online))
	}
	b.Result.Tables = append(b.Result.Tables, t)
	return nil
}

func (g *gateways) measureIdle(ctx context.Context, each, processes int, settle, window time.Duration) (m gatewayIdle, err error) {
	for range g.addrs {
		if err := g.startNext(ctx); err != nil {
			return m, err
		}
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return m, err
	}
	if m.without, err = g.resident(ctx, 0); err != nil {
		return m, err
	}
	all := make([]*measure.Child, processes)
	defer func() { endAgents(all...) }()
	begin := time.Now()
	starting, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	err = inParallel(processes, processes, func(i int) (err error) {
		group := g.agents(i, each)
		all[i], err = startAgents(starting, &group)
		return err
	})
	if err != nil {
		return m, err
	}
	m.start = time.Since(begin)
	if err := measure.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return m, err
	}
	before, err := measure.ReadRedisStat(ctx, g.redis.Client)
	if err != nil {
		return m, err
	}
	cpuBefore, err := g.cpu()
	if err != nil {
		return m, err
	}
	begin = time.Now()
	if m.with, err = g.resident(ctx, window); err != nil {
		return m, err
	}
	seconds := time.Since(begin).Seconds()
	after, err := measure.ReadRedisStat(ctx, g.redis.Client)
	if err != nil {
		return m, err
	}
	cpuAfter, err := g.cpu()
	if err != nil {
		return m, err
	}
	m.redis, m.gateways = 100*(after.CPUSeconds-before.CPUSeconds)/seconds, 100*(cpuAfter-cpuBefore)/seconds
	m.beats = after.Rate(before, "evalsha", seconds)
	for _, c := range all {
		if ended, err := query[int](ctx, c, "ended"); err != nil || ended > 0 {
			return m, fmt.Errorf("%d agents have ended: %w", ended, err)
		}
	}
	if m.connections, err = g.connections(ctx); err != nil {
		return m, err
	}
	m.online, err = g.redis.Client.Do(ctx, g.redis.Client.B().Scard().Key(cell.Layout{Prefix: cell.DefaultPrefix}.Online()).Build()).AsInt64()
	return m, err
}

// resident is the sum of the highest memory of each replica within the window.
func (g *gateways) resident(ctx context.Context, window time.Duration) (sum float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	var mu sync.Mutex // guards sum
	return sum, inParallel(len(g.all), len(g.all), func(i int) error {
		mib, err := g.all[i].HighestResident(ctx, time.Second)
		mu.Lock()
		defer mu.Unlock()
		sum += mib
		return err
	})
}

// cpu is the processor time of all replicas in seconds.
func (g *gateways) cpu() (sum float64, err error) {
	for _, r := range g.all {
		seconds, err := measure.CPUSeconds(r.Cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += seconds
	}
	return sum, nil
}

// connections counts those of Redis that are not this tool's.
func (g *gateways) connections(ctx context.Context) (count int, err error) {
	list, err := g.redis.Client.Do(ctx, g.redis.Client.B().ClientList().Build()).ToString()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " name=bench-stats ") {
			count++
		}
	}
	return count, nil
}
