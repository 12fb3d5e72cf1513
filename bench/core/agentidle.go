package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// agentPoll is how often Redis is asked whether a node is there.
const agentPoll = 20 * time.Millisecond

// runAgentIdle measures an agent that has nothing to do.
func runAgentIdle(ctx context.Context, b *tool.Bench) {
	window, settle := tool.Sized(b, 2*time.Minute, 4*time.Second), tool.Sized(b, 20*time.Second, 100*time.Millisecond)
	b.Say("The nodeagent program with its default settings and one service that runs a command; nothing is submitted. "+
		"%s after the node is there, for %s.", settle, window)
	b.Say("CPU: user and system time by /proc. Resident: VmRSS, the highest of a reading a second. Commands: scripts, reads of " +
		"streams and PINGs, by Redis' commandstats; nothing else is connected but this tool.")
	s := b.StartRedis(ctx)
	defer tool.End(s.Stop)
	cmd := exec.Command(b.Program(ctx, "nodeagent"), "--redis-url="+s.URL(), "--node-id=idle", "--log-level=warn",
		"--set=services=[{name: noop, command: {argv: [cat]}}]")
	cmd.Env = measure.PlainEnv()
	p := tool.Must(measure.StartProcess("nodeagent", cmd))
	defer tool.End(p.Stop)
	awaitNode(ctx, s, p, "idle")
	// The usual client sends PINGs, which would be counted; an agent's does not.
	s.Client.Close()
	s.Client = tool.Must(redisclient.Agent(redisclient.Config{URL: s.URL(), Name: "bench-stats"}))
	tool.Sleep(ctx, settle)
	m := tool.Must(system.NewMeter(ctx, s, p.PID()))
	idle, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	highest := tool.Must(p.HighestResident(idle, min(time.Second, window)))
	used := tool.Must(m.Spent(ctx))
	cpu, scripts, reads, pings := used.OfCore(used.Processes), used.Rate("evalsha"), used.Rate("xread"), used.Rate("ping")
	t := result.NewTable("Agent", "of a core [%]", "resident [MiB]", "scripts [/s]", "stream reads [/s]", "PINGs [/s]")
	t.Add("idle", cpu, highest, scripts, reads, pings)
	b.Result.Tables = []result.Table{t}
	b.Target("idle agent: of a core", result.Percent, result.AtMost, 0.3, cpu)
	b.Target("idle agent: resident", result.MiB, result.AtMost, 25, highest)
	b.Target("idle agent: commands to Redis", result.PerSecond, result.AtMost, 0.5, scripts+reads+pings)
}

// awaitNode waits until the node has sent a heartbeat.
func awaitNode(ctx context.Context, s *system.Redis, p *measure.Process, node string) {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	key := cell.Layout{Prefix: cell.DefaultPrefix}.Load(node)
	for {
		err := s.Client.Do(ctx, s.Client.B().Get().Key(key).Build()).Error()
		if err == nil {
			return
		}
		if !rueidis.IsRedisNil(err) {
			tool.Check(fmt.Errorf("heartbeat of node %s: %w", node, err))
		}
		select {
		case <-p.Done:
			tool.Check(p.Exited())
		case <-time.After(agentPoll):
		}
	}
}
