package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
)

// gatewayIdle is what idle agents through gateways take.
type gatewayIdle struct {
	// Memory in MiB: of a replica that knows no nodes (empty), of one that knows them all and has no
	// agents (without), and of a gateway on average (with).
	empty, without, with   float64
	connections            int // of Redis
	online, failed         int64
	redis, gateways, beats float64 // percent of a core, and a second
	start                  time.Duration
}

// runGatewayIdle measures what agents with nothing to do take of their gateways and of Redis.
func runGatewayIdle(ctx context.Context, b *tool.Bench, program string) error {
	const replicas, processes = 2, 4
	count := tool.Sized(b, 10_000, 40)
	settle, window := tool.Sized(b, 10*time.Second, 100*time.Millisecond), tool.Sized(b, 30*time.Second, time.Second)
	b.Say("At rest: %s agents in %d processes, %d gateways. These agents are no workers: they say what workers say, at the same intervals, and take less of this machine. The figures are of %s, which begin %s after the last agent had registered. Memory: VmRSS, the highest of a reading a second; of an agent: what both gateways have above a third replica that knows the same nodes and has no agents. That one ends before the other figures. Redis' connections are all but this tool's. Redis: its main thread by INFO.",
		measure.Thousands(float64(count)), processes, replicas, window, settle)
	t := result.Table{First: measure.Thousands(float64(count)) + " idle agents", Columns: []result.Column{
		{Name: "online"},
		{Name: "replica without nodes", Unit: result.MiB},
		{Name: "without agents", Unit: result.MiB},
		{Name: "gateway", Unit: result.MiB},
		{Name: "KiB an agent"},
		{Name: "Redis' connections"},
		{Name: "Redis' main thread", Unit: result.Percent},
		{Name: "both replicas, of a core", Unit: result.Percent},
		{Name: "scripts", Unit: result.PerSecond},
		{Name: "heartbeats that failed"},
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
		each := replicas * (m.with - m.without) * 1024 / float64(count)
		t.Rows = append(t.Rows, result.Row{Name: kind.name, Figures: result.Figures(float64(m.online), measure.FourFigures(m.empty), measure.FourFigures(m.without), measure.FourFigures(m.with),
			measure.FourFigures(each), float64(m.connections), measure.FourFigures(m.redis), measure.FourFigures(m.gateways), measure.FourFigures(m.beats), float64(m.failed), measure.FourFigures(m.start.Seconds()))})
		of := fmt.Sprintf("%s idle agents by gateway, %s: ", measure.Thousands(float64(count)), kind.name)
		b.Target(of+"KiB an agent", result.Number, result.AtMost, kind.limit, each)
		b.Target(of+"Redis' connections", result.Number, result.AtMost, 20, float64(m.connections))
		b.Target(of+"Redis' main thread", result.Percent, result.AtMost, 15, m.redis)
		b.Target(of+"heartbeats without an answer within 1 s", result.Number, result.Exactly, 0, float64(m.failed))
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
	without, err := system.StartScheduler(ctx, g.program, g.redis.URL(), len(g.addrs)+1)
	if err != nil {
		return m, err
	}
	defer func() {
		_ = without.Cmd.Process.Kill() // it may have ended
		<-without.Done
	}()
	if m.empty, err = highestResident(ctx, settle, without); err != nil {
		return m, err
	}
	all := make([]*measure.Child, processes)
	defer func() { endAgents(all...) }()
	begin := time.Now()
	starting, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	err = inParallel(processes, processes, func(i int) (err error) {
		group := g.agents(i, each)
		all[i], err = startAgents(starting, lightMode, &group)
		return err
	})
	if err != nil {
		return m, err
	}
	m.start = time.Since(begin)
	if err := measure.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return m, err
	}
	if m.without, err = highestResident(ctx, settle/2, without); err != nil {
		return m, err
	}
	if err := without.Cmd.Process.Kill(); err != nil {
		return m, err
	}
	<-without.Done
	failedBefore, err := failedBeats(ctx, all)
	if err != nil {
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
	if m.with, err = highestResident(ctx, window, g.all...); err != nil {
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
			return m, fmt.Errorf("%d agents have lost their connections: %w", ended, err)
		}
	}
	failedAfter, err := failedBeats(ctx, all)
	if err != nil {
		return m, err
	}
	m.failed = failedAfter - failedBefore
	if m.connections, err = g.connections(ctx); err != nil {
		return m, err
	}
	m.online, err = g.redis.Client.Do(ctx, g.redis.Client.B().Scard().Key(cell.Layout{Prefix: cell.DefaultPrefix}.Online()).Build()).AsInt64()
	return m, err
}

// failedBeats is how many heartbeats had no good answer in time.
func failedBeats(ctx context.Context, all []*measure.Child) (sum int64, err error) {
	for _, c := range all {
		failed, err := query[int64](ctx, c, "failed")
		if err != nil {
			return 0, err
		}
		sum += failed
	}
	return sum, nil
}

// highestResident is the highest memory of each replica within the window, and of these the mean.
func highestResident(ctx context.Context, window time.Duration, of ...*system.Scheduler) (mean float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	all := make([]float64, len(of))
	err = inParallel(len(of), len(of), func(i int) (err error) {
		all[i], err = of[i].HighestResident(ctx, time.Second)
		return err
	})
	for _, mib := range all {
		mean += mib / float64(len(of))
	}
	return mean, err
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

// connections counts Redis' connections without this tool's own.
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
