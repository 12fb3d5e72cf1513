package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// gatewayIdle is what idle agents through gateways take.
type gatewayIdle struct {
	// Memory in MiB: of a replica that knows no nodes (empty), of one that knows them all and has no
	// agents (without), and of a gateway on average (with).
	empty, without, with float64
	connections          int // of Redis
	online, failed       int64
	used                 system.Spent // of the gateways
	start                time.Duration
}

// runGatewayIdle measures what agents with nothing to do take of their gateways and of Redis.
func runGatewayIdle(ctx context.Context, b *tool.Bench) {
	const replicas, processes = 2, 4
	count := tool.Sized(b, 10_000, 40)
	settle, window := tool.Sized(b, 10*time.Second, 100*time.Millisecond), tool.Sized(b, 30*time.Second, time.Second)
	b.Say("At rest: %s agents in %d processes, %d gateways. These agents are no workers: they say what workers say, at the same "+
		"intervals, and take less of this machine. The figures are of %s, which begin %s after the last agent had registered. "+
		"Memory: VmRSS, the highest of a reading a second; of an agent: what both gateways have above a third replica that "+
		"knows the same nodes and has no agents. That one ends before the other figures. Redis' connections are all but this "+
		"tool's. Redis: its main thread by INFO.", measure.Thousands(count), processes, replicas, window, settle)
	t := result.NewTable(measure.Thousands(count)+" idle agents", "online", "replica without nodes [MiB]", "without agents [MiB]",
		"gateway [MiB]", "KiB an agent", "Redis' connections", "Redis' main thread [%]", "both replicas, of a core [%]",
		"scripts [/s]", "heartbeats that failed", "start of all [s]")
	for _, kind := range []struct {
		name   string
		secure bool
		limit  float64
	}{{"plain", false, 40}, {"TLS", true, 64}} {
		b.Progress("%s agents at rest, %s", measure.Thousands(count), kind.name)
		m := measureIdle(ctx, newGateways(ctx, b, replicas, kind.secure), count/processes, processes, settle, window)
		each := replicas * (m.with - m.without) * 1024 / float64(count)
		redis := m.used.OfCore(m.used.Redis)
		t.Add(kind.name, m.online, m.empty, m.without, m.with, each, m.connections, redis, m.used.OfCore(m.used.Processes),
			m.used.Rate("evalsha"), m.failed, m.start.Seconds())
		of := fmt.Sprintf("%s idle agents by gateway, %s: ", measure.Thousands(count), kind.name)
		b.Target(of+"KiB an agent", result.Number, result.AtMost, kind.limit, each)
		b.Target(of+"Redis' connections", result.Number, result.AtMost, 20, float64(m.connections))
		b.Target(of+"Redis' main thread", result.Percent, result.AtMost, 15, redis)
		b.Target(of+"heartbeats without an answer within 1 s", result.Number, result.Exactly, 0, float64(m.failed))
		b.Target(of+"online in the end", result.Number, result.Exactly, float64(count), float64(m.online))
	}
	b.Result.Tables = append(b.Result.Tables, t)
}

// measureIdle also stops the gateways.
func measureIdle(ctx context.Context, g *gateways, each, processes int, settle, window time.Duration) (m gatewayIdle) {
	defer tool.End(g.stop)
	var pids []int
	for range g.addrs {
		g.startNext(ctx)
		pids = append(pids, g.all[len(g.all)-1].PID())
	}
	without := tool.Must(system.StartScheduler(ctx, g.program, g.redis.URL(), len(g.addrs)+1))
	defer without.Kill()
	m.empty = highestResident(ctx, settle, without)
	begin := time.Now()
	all := startAgents(ctx, lightMode, processes, g.agents(each))
	defer tool.End(all.Kill)
	m.start = time.Since(begin)
	tool.Sleep(ctx, settle)
	m.without = highestResident(ctx, settle/2, without)
	without.Kill()
	failedBefore := failedBeats(ctx, all)
	meter := tool.Must(system.NewMeter(ctx, g.redis, pids...))
	m.with = highestResident(ctx, window, g.all...)
	m.used = tool.Must(meter.Spent(ctx))
	noneEnded(ctx, all)
	m.failed = failedBeats(ctx, all) - failedBefore
	for line := range strings.Lines(tool.Must(g.redis.Client.Do(ctx, g.redis.Client.B().ClientList().Build()).ToString())) {
		if !strings.Contains(line, " name=bench-stats ") {
			m.connections++
		}
	}
	m.online = onlineNodes(ctx, g.redis)
	return m
}

// failedBeats is how many heartbeats had no good answer in time.
func failedBeats(ctx context.Context, all tool.Children) (sum int64) {
	for _, failed := range tool.AskAll[int64](ctx, all, 0, "failed") {
		sum += failed
	}
	return sum
}

// highestResident is the highest memory of each replica within the window, and of these the mean.
func highestResident(ctx context.Context, window time.Duration, of ...*system.Scheduler) (mean float64) {
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	all := make([]float64, len(of))
	tool.Together(len(of), len(of), func(i int) { all[i] = tool.Must(of[i].HighestResident(ctx, time.Second)) })
	for _, mib := range all {
		mean += mib / float64(len(of))
	}
	return mean
}
