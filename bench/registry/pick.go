package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/registry/entrant"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/registry"
)

const (
	picksAtOnce   = 1000
	pickChanges   = 1000 // a second
	pickChanged   = 100  // instances
	pickKeys      = 1024
	picksAtRest   = 100_000
	pickService   = "pick"
	pickWarm      = 300 * time.Millisecond
	pickCountdown = time.Second
)

func runPick(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) {
	window := l.Window / 4
	b.Say("One goroutine picks instances of a service and says that the calls went well, for %s, while another process changes "+
		"%d of the instances %s times a second; the mean by the processor time of its thread, which also prepares the lists, "+
		"and the median of %d windows. Allocations: of the whole process in %s picks while nothing changes, by pick.",
		window, pickChanged, measure.Thousands(pickChanges), l.Rounds, measure.Thousands(picksAtRest))
	t := result.NewTable("Pick", "processor time [ns]", "by the clock [ns]", "new lists [/s]", "allocations")
	for _, n := range []int{tool.Sized(b, 1000, 200), tool.Sized(b, 100_000, 1000)} {
		pickFrom(ctx, b, redis, n, tool.Length{Rounds: l.Rounds, Window: window}, &t)
	}
	b.Result.Tables = []result.Table{t}
}

func pickFrom(ctx context.Context, b *tool.Bench, redis *system.Redis, n int, l tool.Length, t *result.Table) {
	flush(ctx, redis)
	s := servers{redis: redis}
	changer := s.start(ctx, freeslot, 1)
	defer tool.End(changer.End)
	r := entrant.Request{Do: "fill", Name: pickService, Workers: 1, Each: pickChanged, Rate: pickChanges}
	ask(ctx, changer, r)
	service := pickService + "-0"
	others := startProvision(ctx, provision{
		URL: redis.URL(), Service: service, Prefix: "other-", Count: n - pickChanged, Interval: quiet,
	})
	defer tool.End(others.End)
	consumer, stop := startConsumer(ctx, redis.URL(), 0)
	defer tool.End(stop)
	policies := []registry.Policy{registry.Weighted, registry.RoundRobin, registry.LeastLoaded, registry.ConsistentHash}
	loops := make([]*picking, len(policies))
	for i, policy := range policies {
		picker := tool.Must(registry.NewPicker(ctx, consumer, service, registry.PickConfig{Policy: policy}))
		loops[i] = &picking{picker: picker, list: func() *registry.List {
			l, _ := consumer.AllInstances(ctx, service) // there is one from NewPicker on
			return l
		}}
		for k := range pickKeys {
			loops[i].keys = append(loops[i].keys, "session-"+strconv.Itoa(k))
		}
		loops[i].rest(ctx)
	}
	r.Do, r.Window = "change", time.Duration(l.Rounds*len(loops))*(l.Window+pickWarm)+pickCountdown
	changed := make(chan error, 1)
	go func() { changed <- tool.Try(func() { ask(ctx, changer, r) }) }()
	time.Sleep(pickCountdown / 2)
	for range l.Rounds {
		for _, p := range loops {
			p.run(ctx, pickWarm, false)
			p.run(ctx, l.Window, true)
		}
	}
	tool.Check(<-changed)
	for i, p := range loops {
		cpu, limit := measure.Median(p.cpu), 100.0
		name := fmt.Sprintf("%s instances, %s", measure.Thousands(n), policies[i])
		t.Add(name, cpu, measure.Median(p.clock), measure.Median(p.lists), result.Figure{p.allocations})
		switch policies[i] {
		case registry.ConsistentHash:
			limit = 500
		case registry.Weighted:
			b.Target("pick from "+name+": allocations", result.Number, result.Exactly, 0, p.allocations)
		}
		b.Target("pick from "+name+", under 1,000 changes/s", result.Nanoseconds, result.AtMost, limit, cpu)
	}
}

// picking is one policy's loop; figures are of the windows, times in ns a pick.
type picking struct {
	picker            *registry.Picker
	list              func() *registry.List
	keys              []string
	cpu, clock, lists []float64
	allocations       float64
}

func (p *picking) some(ctx context.Context) {
	for i := range picksAtOnce {
		tool.Must(p.picker.Pick(ctx, p.keys[i%len(p.keys)])).Done(nil)
	}
}

// rest counts allocations, rounded down as package testing does it: the consumer makes some.
func (p *picking) rest(ctx context.Context) {
	p.some(ctx) // it prepares the list
	p.allocations = float64(measure.Allocations(func() {
		for range picksAtRest / picksAtOnce {
			p.some(ctx)
		}
	}) / picksAtRest)
}

func (p *picking) run(ctx context.Context, window time.Duration, count bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	picks, lists, last := 0, 0, p.list()
	begin, used := time.Now(), measure.ThreadTime()
	for time.Since(begin) < window {
		p.some(ctx)
		picks += picksAtOnce
		if now := p.list(); now != last {
			last, lists = now, lists+1
		}
	}
	if count {
		took := time.Since(begin)
		p.cpu = append(p.cpu, float64(measure.ThreadTime()-used)/float64(picks))
		p.clock = append(p.clock, float64(took)/float64(picks))
		p.lists = append(p.lists, float64(lists)/took.Seconds())
	}
}
