package main

import (
	"context"
	"errors"
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

func runPush(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) (err error) {
	window := tool.Sized(b, 5*l.window/2, 2*l.window)
	b.Say("%d subscribers in %d processes follow a service of %d instances. A fifth process changes one instance %d times a second for %s. The time runs from the moment when a change was due until the subscriber has it. A change that a list overtook counts with that list. Medians of %d rounds, in which the registries take turns. A process has one client, which its 25 subscribers share; below that each subscriber has a client with connections of its own.", watchers, watchProcesses, pushedInstances, changesASecond, window, l.rounds)
	b.Say("etcd: a watch of the prefix for each subscriber. v1: HSET and PUBLISH; then each subscriber reads the zset and each hash. A hash with EXPIRE has no changes to follow; its readers, and those of v1 without the channel, have them half a pause of their timer later.")
	s := servers{redis: redis}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.startEtcd(ctx, b, l.etcd); err != nil {
		return err
	}
	names := []string{freeslot, v1}
	if s.etcd != nil {
		names = []string{freeslot, etcd, v1}
	}
	t := result.Table{First: "From a change to a subscriber", Columns: []result.Column{
		{Name: "p50", Unit: result.Microseconds},
		{Name: "p99", Unit: result.Microseconds},
		{Name: "longest", Unit: result.Microseconds},
		{Name: "the server, of a core", Unit: result.Percent},
		{Name: "not seen"},
	}}
	for _, shape := range []struct {
		clients int
		name    string
	}{{1, "a client for each process"}, {watchers / watchProcesses, "a client for each subscriber"}} {
		pushed := make(map[string]*pushes)
		for _, name := range names {
			pushed[name] = &pushes{}
		}
		for round := range l.rounds {
			for i := range names {
				name := names[(i+round)%len(names)]
				r := entrant.Request{Name: fmt.Sprintf("push-%d-%d", shape.clients, round), Rate: changesASecond, Window: window}
				if err := s.push(ctx, name, shape.clients, r, pushed[name]); err != nil {
					return err
				}
			}
			b.Progress("%s: round %d of %d", shape.name, round+1, l.rounds)
		}
		least50, least99 := math.Inf(1), math.Inf(1)
		for _, name := range names {
			p := pushed[name]
			p50, p99 := measure.Median(p.p50), measure.Median(p.p99)
			t.Rows = append(t.Rows, result.Row{Name: name + ", " + shape.name, Figures: result.Figures(p50, p99, measure.Quantile(p.longest, 1), measure.FourFigures(measure.Median(p.server)), float64(p.missed))})
			if name != freeslot {
				least50, least99 = min(least50, p50), min(least99, p99)
			}
		}
		own := pushed[freeslot]
		b.Failed += int64(own.missed)
		b.Target("change to 100 subscribers, "+shape.name+": p50", result.Milliseconds, result.AtMost, 1, measure.Median(own.p50)/1000)
		b.Target("change to 100 subscribers, "+shape.name+": p99", result.Milliseconds, result.AtMost, 5, measure.Median(own.p99)/1000)
		b.Target("change to 100 subscribers, "+shape.name+": p50 / the least of the peers", result.Times, result.AtMost, 1, measure.Median(own.p50)/least50)
		b.Target("change to 100 subscribers, "+shape.name+": p99 / the least of the peers", result.Times, result.AtMost, 1, measure.Median(own.p99)/least99)
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

// pushes are of the rounds: times in us, and the server's share of a core in percent.
type pushes struct {
	p50, p99, longest, server []float64
	missed                    int
}

func (s *servers) push(ctx context.Context, name string, clients int, r entrant.Request, into *pushes) (err error) {
	if err := flush(ctx, s.redis); err != nil {
		return err
	}
	var children []*measure.Child
	defer func() { err = errors.Join(err, end(children)) }()
	for i := range watchProcesses + 1 {
		count := clients
		if i == 0 {
			count = 1
		}
		c, err := s.start(ctx, name, count)
		if err != nil {
			return err
		}
		children = append(children, c)
	}
	provider, subscribers := children[0], children[1:]
	fill := entrant.Request{Do: "fill", Name: r.Name, Workers: 1, Each: pushedInstances}
	if _, err := ask(ctx, provider, fill); err != nil {
		return err
	}
	watch := entrant.Request{Do: "watch", Name: r.Name, Workers: watchers / watchProcesses}
	if _, err := askAll(ctx, subscribers, watch); err != nil {
		return err
	}
	if _, _, err := changes(ctx, provider, subscribers, r, r.Window/5); err != nil { // a warm-up
		return err
	}
	before, err := s.cpu(name)
	if err != nil {
		return err
	}
	times, missed, err := changes(ctx, provider, subscribers, r, r.Window)
	if err != nil {
		return err
	}
	after, err := s.cpu(name)
	if err != nil {
		return err
	}
	all := measure.Summary(times)
	into.p50, into.p99 = append(into.p50, float64(all.P50)), append(into.p99, float64(all.P99))
	into.longest = append(into.longest, float64(all.Max))
	into.server = append(into.server, 100*(after-before)/r.Window.Seconds())
	into.missed += missed
	return nil
}

// changes has them made for the window, and asks the subscribers what they saw.
func changes(ctx context.Context, provider *measure.Child, subscribers []*measure.Child, r entrant.Request, window time.Duration) (*hdrhistogram.Histogram, int, error) {
	r.Do, r.Window = "change", window
	made, err := ask(ctx, provider, r)
	if err != nil {
		return nil, 0, err
	}
	each := made.Count * watchers / watchProcesses
	seen, err := askAll(ctx, subscribers, entrant.Request{Do: "seen", Each: each})
	if err != nil {
		return nil, 0, err
	}
	times, missed := measure.NewHistogram(), 0
	for _, a := range seen {
		times.Merge(hdrhistogram.Import(a.Times))
		missed += each - a.Count
	}
	return times, missed, nil
}
