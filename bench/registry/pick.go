package main

import (
	"context"
	"errors"
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

func runPick(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) error {
	window := l.window / 4
	b.Say("One goroutine picks instances of a service and says that the calls went well, for %s, while another process changes %d of the instances %s times a second; the mean by the processor time of its thread, which also prepares the lists, and the median of %d windows. Allocations: of the whole process in %s picks while nothing changes, by pick.", window, pickChanged, measure.Thousands(pickChanges), l.rounds, measure.Thousands(picksAtRest))
	t := result.Table{First: "Pick", Columns: []result.Column{{Name: "processor time", Unit: result.Nanoseconds}, {Name: "by the clock", Unit: result.Nanoseconds}, {Name: "new lists", Unit: result.PerSecond}, {Name: "allocations"}}}
	for _, n := range []int{tool.Sized(b, 1000, 200), tool.Sized(b, 100_000, 1000)} {
		if err := pickFrom(ctx, b, redis, n, l.rounds, window, &t); err != nil {
			return err
		}
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

func pickFrom(ctx context.Context, b *tool.Bench, redis *system.Redis, n, rounds int, window time.Duration, t *result.Table) (err error) {
	if err := flush(ctx, redis); err != nil {
		return err
	}
	s := servers{redis: redis}
	changer, err := s.start(ctx, freeslot, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, changer.End()) }()
	r := entrant.Request{Do: "fill", Name: pickService, Workers: 1, Each: pickChanged, Rate: pickChanges}
	if _, err := ask(ctx, changer, r); err != nil {
		return err
	}
	service := pickService + "-0"
	others, err := startProvision(ctx, provision{URL: redis.URL(), Service: service, Prefix: "other-", Count: n - pickChanged, Interval: quiet})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.End()) }()
	consumer, err := startConsumer(ctx, redis.URL(), 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopConsumer(consumer)) }()
	list := func() *registry.List {
		l, _ := consumer.AllInstances(ctx, service) // there is one from NewPicker on
		return l
	}
	policies := []registry.Policy{registry.Weighted, registry.RoundRobin, registry.LeastLoaded, registry.ConsistentHash}
	loops := make([]*picking, len(policies))
	for i, policy := range policies {
		picker, err := registry.NewPicker(ctx, consumer, service, registry.PickConfig{Policy: policy})
		if err != nil {
			return err
		}
		loops[i] = &picking{picker: picker, list: list}
		for k := range pickKeys {
			loops[i].keys = append(loops[i].keys, "session-"+strconv.Itoa(k))
		}
		if err := loops[i].rest(ctx); err != nil {
			return err
		}
	}
	r.Do, r.Window = "change", time.Duration(rounds*len(loops))*(window+pickWarm)+pickCountdown
	changed := make(chan error, 1)
	go func() {
		_, err := ask(ctx, changer, r)
		changed <- err
	}()
	time.Sleep(pickCountdown / 2)
	for range rounds {
		for _, p := range loops {
			if err := p.run(ctx, pickWarm, false); err != nil {
				return err
			}
			if err := p.run(ctx, window, true); err != nil {
				return err
			}
		}
	}
	if err := <-changed; err != nil {
		return err
	}
	for i, p := range loops {
		cpu, limit, name := measure.Median(p.cpu), 100.0, fmt.Sprintf("%s instances, %s", measure.Thousands(float64(n)), policies[i])
		t.Rows = append(t.Rows, result.Row{Name: name, Figures: result.Figures(measure.FourFigures(cpu), measure.FourFigures(measure.Median(p.clock)), measure.FourFigures(measure.Median(p.lists)), p.allocations)})
		switch policies[i] {
		case registry.ConsistentHash:
			limit = 500
		case registry.Weighted:
			b.Target("pick from "+name+": allocations", result.Number, result.Exactly, 0, p.allocations)
		}
		b.Target("pick from "+name+", under 1,000 changes/s", result.Nanoseconds, result.AtMost, limit, cpu)
	}
	return nil
}

// picking is one policy's loop; figures are of the windows, times in ns a pick.
type picking struct {
	picker            *registry.Picker
	list              func() *registry.List
	keys              []string
	cpu, clock, lists []float64
	allocations       float64
}

func (p *picking) some(ctx context.Context) error {
	for i := range picksAtOnce {
		picked, err := p.picker.Pick(ctx, p.keys[i%len(p.keys)])
		if err != nil {
			return err
		}
		picked.Done(nil)
	}
	return nil
}

// rest counts allocations, rounded down as package testing does it: the consumer makes some.
func (p *picking) rest(ctx context.Context) error {
	if err := p.some(ctx); err != nil { // it prepares the list
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range picksAtRest / picksAtOnce {
		if err := p.some(ctx); err != nil {
			return err
		}
	}
	runtime.ReadMemStats(&after)
	p.allocations = float64((after.Mallocs - before.Mallocs) / picksAtRest)
	return nil
}

func (p *picking) run(ctx context.Context, window time.Duration, count bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	picks, lists, last := 0, 0, p.list()
	begin, used := time.Now(), measure.ThreadTime()
	for time.Since(begin) < window {
		if err := p.some(ctx); err != nil {
			return err
		}
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
	return nil
}
