package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	// fleetFiles is enough for the connections of all agents at Redis, and for those of a process
	// of theirs.
	fleetFiles = 65_536
	// fleetSpare are those for other connections, and fleetRedis what Redis keeps for itself.
	fleetSpare = 200
	fleetRedis = 32
)

// runAgentFleet measures what many idle agents cost Redis.
func runAgentFleet(ctx context.Context, b *tool.Bench) {
	wanted, processes, replicas := tool.Sized(b, 10_000, 40), tool.Sized(b, 4, 2), tool.Sized(b, 3, 1)
	settle, window := tool.Sized(b, 20*time.Second, time.Second), tool.Sized(b, time.Minute, time.Second)
	files := int(tool.Must(measure.RaiseFiles(fleetFiles)))
	count := min(wanted, (files-fleetSpare)/2) / processes * processes
	if count < wanted {
		b.Say("This machine allows %s open files a process, which is %s agents with two connections each to one Redis: its time "+
			"is counted up to %s.", measure.Thousands(files), measure.Thousands(count), measure.Thousands(wanted))
	}
	b.Say("%s agents with nothing to do: workers with the default settings, %d processes of them, each worker with connections "+
		"of its own; %d replicas (the scheduler program) hear of all. Redis' main thread by INFO, for %s, %s after the last "+
		"node was there.", measure.Thousands(count), processes, replicas, window, settle)
	program := b.Program(ctx, "scheduler")
	s := b.StartRedis(ctx, "--maxclients", strconv.Itoa(files-fleetRedis))
	defer tool.End(s.Stop)
	for i := range replicas {
		r := tool.Must(system.StartScheduler(ctx, program, s.URL(), i+1))
		defer tool.End(r.Stop)
	}
	begin := time.Now()
	all := startAgents(ctx, agentsMode, processes, agents{Redis: s.URL(), Count: count / processes, Slots: benchNode(0).MaxConcurrency})
	defer tool.End(all.End)
	started := time.Since(begin)
	tool.Sleep(ctx, settle)
	m := tool.Must(system.NewMeter(ctx, s))
	tool.Sleep(ctx, window)
	used := tool.Must(m.Spent(ctx))
	noneEnded(ctx, all)
	online, cpu := onlineNodes(ctx, s), used.OfCore(used.Redis)
	t := result.NewTable("Agents", "online", "heartbeats and registrations [/s]", "blocking reads [/s]", "PINGs [/s]",
		"Redis' main thread [%]", "start of all [ms]")
	t.Add(measure.Thousands(count), online, used.Rate("evalsha"), used.Rate("xread"), used.Rate("ping"), cpu,
		started.Seconds()*1000)
	b.Result.Tables = []result.Table{t}
	b.Target(fmt.Sprintf("%s idle agents, %d replicas: Redis' main thread", measure.Thousands(wanted), replicas),
		result.Percent, result.AtMost, 35, cpu*float64(wanted)/float64(count))
	b.Target("idle agents online in the end", result.Number, result.Exactly, float64(count), float64(online))
}
