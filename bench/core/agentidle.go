package main

import (
	"context"
	"errors"
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
func runAgentIdle(ctx context.Context, b *tool.Bench) (err error) {
	window, settle := tool.Sized(b, 2*time.Minute, 4*time.Second), tool.Sized(b, 20*time.Second, 100*time.Millisecond)
	b.Say("The nodeagent program with its default settings and one service that runs a command; nothing is submitted. %s after the node is there, for %s.", settle, window)
	b.Say("CPU: user and system time by /proc. Resident: VmRSS, the highest of a reading a second. Commands: scripts, reads of streams and PINGs, by Redis' commandstats; nothing else is connected but this tool.")
	program, err := measure.BuildProgram(ctx, b.Root, b.Folder, "nodeagent")
	if err != nil {
		return err
	}
	s, err := startRedis(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	cmd := exec.Command(program, "--redis-url="+s.URL(), "--node-id=idle", "--log-level=warn", "--set=services=[{name: noop, command: {argv: [cat]}}]")
	cmd.Env = measure.PlainEnv()
	p, err := measure.StartProcess("nodeagent", cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := awaitNode(ctx, s, p, "idle"); err != nil {
		return err
	}
	// The usual client sends PINGs, which would be counted; an agent's does not.
	s.Client.Close()
	if s.Client, err = redisclient.Agent(redisclient.Config{URL: s.URL(), Name: "bench-stats"}); err != nil {
		return err
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return err
	}
	pid := p.Cmd.Process.Pid
	cpuBefore, err := measure.CPUSeconds(pid)
	if err != nil {
		return err
	}
	before, err := measure.ReadRedisStat(ctx, s.Client)
	if err != nil {
		return err
	}
	begin := time.Now()
	idle, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	highest, err := p.HighestResident(idle, min(time.Second, window))
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	cpuAfter, err := measure.CPUSeconds(pid)
	if err != nil {
		return err
	}
	after, err := measure.ReadRedisStat(ctx, s.Client)
	if err != nil {
		return err
	}
	rate := func(command string) float64 { return measure.FourFigures(after.Rate(before, command, seconds)) }
	cpu, commands := 100*(cpuAfter-cpuBefore)/seconds, rate("evalsha")+rate("xread")+rate("ping")
	b.Result.Tables = []result.Table{{First: "Agent", Columns: []result.Column{
		{Name: "of a core", Unit: result.Percent},
		{Name: "resident", Unit: result.MiB},
		{Name: "scripts", Unit: result.PerSecond},
		{Name: "stream reads", Unit: result.PerSecond},
		{Name: "PINGs", Unit: result.PerSecond},
	}, Rows: []result.Row{{Name: "idle", Figures: result.Figures(measure.FourFigures(cpu), measure.FourFigures(highest), rate("evalsha"), rate("xread"), rate("ping"))}}}}
	b.Target("idle agent: of a core", result.Percent, result.AtMost, 0.3, cpu)
	b.Target("idle agent: resident", result.MiB, result.AtMost, 25, highest)
	b.Target("idle agent: commands to Redis", result.PerSecond, result.AtMost, 0.5, commands)
	return nil
}

// awaitNode waits until the node has sent a heartbeat.
func awaitNode(ctx context.Context, s *system.Redis, p *measure.Process, node string) error {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	key := cell.Layout{Prefix: cell.DefaultPrefix}.Load(node)
	for {
		err := s.Client.Do(ctx, s.Client.B().Get().Key(key).Build()).Error()
		if err == nil {
			return nil
		}
		if !rueidis.IsRedisNil(err) {
			return fmt.Errorf("heartbeat of node %s: %w", node, err)
		}
		select {
		case <-p.Done:
			return p.Exited()
		case <-time.After(agentPoll):
		}
	}
}
