package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/registry/entrant"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	watchers        = 100
	watchProcesses  = 4
	changesASecond  = 200
	pushedInstances = 10
)

func runPush(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) {
	window := tool.Sized(b, 5*l.Window/2, 2*l.Window)
	b.Say("%d subscribers in %d processes follow a service of %d instances. A fifth process changes one instance %d times a "+
		"second for %s. The time runs from the moment when a change was due until the subscriber has it. A change that a list "+
		"overtook counts with that list. Medians of %d rounds, in which the registries take turns. A process has one client, "+
		"which its 25 subscribers share; below that each subscriber has a client with connections of its own.",
		watchers, watchProcesses, pushedInstances, changesASecond, window, l.Rounds)
	b.Say("etcd: a watch of the prefix for each subscriber. v1: HSET and PUBLISH; then each subscriber reads the zset and each " +
		"hash. A hash with EXPIRE has no changes to follow; its readers, and those of v1 without the channel, have them half " +
		"a pause of their timer later.")
	s := servers{redis: redis}
	defer tool.End(s.stop)
	s.startEtcd(ctx, b, l.etcd)
	names := []string{freeslot, v1}
	if s.etcd != nil {
		names = []string{freeslot, etcd, v1}
	}
	t := result.NewTable("From a change to a subscriber", "p50 [us]", "p99 [us]", "longest [us]", "the server, of a core [%]",
		"not seen")
	for _, shape := range []struct {
		clients int
		name    string
	}{{1, "a client for each process"}, {watchers / watchProcesses, "a client for each subscriber"}} {
		pushed := make(map[string]*pushes)
		for _, name := range names {
			pushed[name] = &pushes{}
		}
		b.Progress("%s", shape.name)
		tool.InTurns(b, l.Rounds, names, func(name string, round int) {
			r := entrant.Request{Name: fmt.Sprintf("push-%d-%d", shape.clients, round), Rate: changesASecond, Window: window}
			s.push(ctx, name, shape.clients, r, pushed[name])
		})
		least50, least99 := math.Inf(1), math.Inf(1)
		for _, name := range names {
			p := pushed[name]
			p50, p99 := measure.Median(p.p50), measure.Median(p.p99)
			t.Add(name+", "+shape.name, result.Figure{p50}, result.Figure{p99}, int64(measure.Quantile(p.longest, 1)),
				measure.Median(p.server), p.missed)
			if name != freeslot {
				least50, least99 = min(least50, p50), min(least99, p99)
			}
		}
		own := pushed[freeslot]
		b.Failed += int64(own.missed)
		what, p50, p99 := "change to 100 subscribers, "+shape.name+": ", measure.Median(own.p50), measure.Median(own.p99)
		b.Target(what+"p50", result.Milliseconds, result.AtMost, 1, p50/1000)
		b.Target(what+"p99", result.Milliseconds, result.AtMost, 5, p99/1000)
		b.Target(what+"p50 / the least of the peers", result.Times, result.AtMost, 1, p50/least50)
		b.Target(what+"p99 / the least of the peers", result.Times, result.AtMost, 1, p99/least99)
	}
	b.Result.Tables = []result.Table{t}
}

// pushes are of the rounds: times in us, and the server's share of a core in percent.
type pushes struct {
	p50, p99, longest, server []float64
	missed                    int
}

func (s *servers) push(ctx context.Context, name string, clients int, r entrant.Request, into *pushes) {
	flush(ctx, s.redis)
	children := tool.Children{s.start(ctx, name, 1)}
	defer tool.End(children.End)
	for range watchProcesses {
		children = append(children, s.start(ctx, name, clients))
	}
	provider, subscribers := children[0], children[1:]
	ask(ctx, provider, entrant.Request{Do: "fill", Name: r.Name, Workers: 1, Each: pushedInstances})
	watch := entrant.Request{Do: "watch", Name: r.Name, Workers: watchers / watchProcesses}
	tool.AskAll[entrant.Answer](ctx, subscribers, 0, watch)
	changes(ctx, provider, subscribers, r, r.Window/5) // a warm-up
	m := s.meter(ctx, name)
	times, missed := changes(ctx, provider, subscribers, r, r.Window)
	used := tool.Must(m.Spent(ctx))
	all := measure.Summary(times)
	into.p50, into.p99 = append(into.p50, float64(all.P50)), append(into.p99, float64(all.P99))
	into.longest = append(into.longest, float64(all.Max))
	into.server = append(into.server, 100*used.Processes/r.Window.Seconds())
	into.missed += missed
}

// changes has them made for the window, and asks the subscribers what they saw.
func changes(
	ctx context.Context, provider *measure.Child, subscribers tool.Children, r entrant.Request, window time.Duration,
) (*hdrhistogram.Histogram, int) {
	r.Do, r.Window = "change", window
	each := ask(ctx, provider, r).Count * watchers / watchProcesses
	times, missed := measure.NewHistogram(), 0
	for _, a := range tool.AskAll[entrant.Answer](ctx, subscribers, 0, entrant.Request{Do: "seen", Each: each}) {
		times.Merge(hdrhistogram.Import(a.Times))
		missed += each - a.Count
	}
	return times, missed
}
