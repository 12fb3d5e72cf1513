package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// fleetProcesses is how many processes light agents are spread over.
const fleetProcesses = 4

// fleetOnline is how long a fleet may take until all its nodes are online.
const fleetOnline = time.Minute

var errNotOnline = errors.New("not all nodes are online")

// starts are the starts of one kind of connections.
type starts struct {
	name   string
	secure bool
	// took has the seconds of each start that ended well. failed counts heartbeats without an answer
	// in time, ended agents that lost their connection, broken starts that ended with an error.
	took                  []float64
	failed, ended, broken int64
}

// runStarts starts a large fleet again and again.
func (f *daily) runStarts(ctx context.Context, b *tool.Bench) {
	tool.Must(measure.RaiseFiles(fleetFiles))
	rounds, count := cmp.Or(f.rounds, tool.Sized(b, 10, 1)), tool.Sized(b, 10_000, 40)
	settle := tool.Sized(b, 10*time.Second, 100*time.Millisecond)
	b.Say("%s agents in %d processes connect to two gateways, %d at a time in each process; %d starts of each kind, in turns, "+
		"each on a fresh Redis. A start ends when Redis has all nodes online. Heartbeats that failed had no answer within %s, "+
		"during the start or in the %s after it. The agents say what workers say.",
		measure.Thousands(count), fleetProcesses, lightCallers, rounds, lightBeatTimeout, settle)
	kinds := []*starts{{name: "plain"}, {name: "TLS", secure: true}}
	tool.InTurns(b, rounds, kinds, func(k *starts, _ int) {
		if err := tool.Try(func() { k.one(ctx, b, count, settle) }); err != nil {
			tool.Check(ctx.Err())
			k.broken++
			b.Progress("%s: %v", k.name, err)
		}
	})
	t := result.NewTable(measure.Thousands(count)+" agents by two gateways", "all online after [s]", "least and most [s]",
		"starts that failed", "heartbeats that failed", "connections lost")
	for _, k := range kinds {
		var took, least any
		if len(k.took) > 0 {
			took, least = measure.Median(k.took), spread(k.took)
		}
		t.Add(k.name, took, least, k.broken, k.failed, k.ended)
		of := measure.Thousands(count) + " agents by two gateways, " + k.name + ": "
		b.Target(of+"starts that failed", result.Number, result.Exactly, 0, float64(k.broken))
		b.Target(of+"heartbeats that failed and connections lost", result.Number, result.Exactly, 0, float64(k.failed+k.ended))
		b.Note("in %d starts", rounds)
	}
	b.Result.Tables = []result.Table{t}
}

// one is one start.
func (k *starts) one(ctx context.Context, b *tool.Bench, count int, settle time.Duration) {
	g := newGateways(ctx, b, 2, k.secure)
	defer tool.End(g.stop)
	for range g.addrs {
		g.startNext(ctx)
	}
	begin := time.Now()
	all := startAgents(ctx, lightMode, fleetProcesses, g.agents(count/fleetProcesses))
	defer tool.End(all.Kill)
	for onlineNodes(ctx, g.redis) < int64(count) {
		if time.Since(begin) > fleetStart+fleetOnline {
			tool.Check(errNotOnline)
		}
		tool.Sleep(ctx, agentPoll)
	}
	took := time.Since(begin)
	tool.Sleep(ctx, settle)
	k.failed += failedBeats(ctx, all)
	for _, ended := range tool.AskAll[int64](ctx, all, 0, "ended") {
		k.ended += ended
	}
	k.took = append(k.took, took.Seconds())
}

// runLarge grows a fleet as far as this machine bears it.
func runLarge(ctx context.Context, b *tool.Bench) {
	tool.Must(measure.RaiseFiles(fleetFiles))
	settle, window := tool.Sized(b, 10*time.Second, 100*time.Millisecond), tool.Sized(b, 20*time.Second, time.Second)
	steps := tool.Sized(b, []int{10_000, 20_000, 30_000}, []int{40})
	b.Say("As the part gateway, at rest and plain, with more and more agents, until a fleet does not start any more or "+
		"loses connections. Windows of %s. Scripts are what gateways gather heartbeats into. Two gateways, the agents and "+
		"Redis share this machine.", window)
	t := result.NewTable("Agents by two gateways", "online", "gateway [MiB]", "KiB an agent", "both replicas, of a core [%]",
		"Redis' main thread [%]", "replicas, a heartbeat [us]", "Redis, a heartbeat [us]", "scripts [/s]",
		"bytes that Redis sends [/s]", "heartbeats that failed", "start of all [s]")
	var largest float64
	for _, count := range steps {
		b.Progress("%s agents", measure.Thousands(count))
		var m gatewayIdle
		err := tool.Try(func() {
			g := newGateways(ctx, b, 2, false)
			g.env = []string{"FREESLOT_GATEWAY__MAX_AGENTS=" + strconv.Itoa(count)}
			m = measureIdle(ctx, g, count/fleetProcesses, fleetProcesses, settle, window)
		})
		if err != nil {
			tool.Check(ctx.Err())
			b.Progress("%v", err)
			b.Say("%s agents were too many for this machine: %v", measure.Thousands(count), err)
			break
		}
		if m.failed == 0 {
			largest = float64(m.online)
		}
		beats := float64(count) / meanBeat.Seconds()
		t.Add(measure.Thousands(count), m.online, m.with, 2*(m.with-m.without)*1024/float64(count),
			m.used.OfCore(m.used.Processes), m.used.OfCore(m.used.Redis), m.used.Processes*1e6/m.used.Seconds/beats,
			m.used.Redis*1e6/m.used.Seconds/beats, m.used.Rate("evalsha"), m.used.SentRate(), m.failed, m.start.Seconds())
	}
	b.Result.Tables = []result.Table{t}
	b.Target("light agents by two gateways on this machine, without a heartbeat that failed", result.Number, result.AtLeast,
		float64(steps[len(steps)-1]), largest)
}
