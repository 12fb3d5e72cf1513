package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func runIdle(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) error {
	held, managers, waiters := tool.Sized(b, 10_000, 100), tool.Sized(b, 100, 5), 10
	// Renewals come every 10 s, and the watchdog every 5 s.
	window := tool.Sized(b, 30*l.window, 3*l.window)
	b.Say("One process holds %s locks; then %d managers, all in one process, wait for one key with %d waiters each. Processor time of Redis' main thread and of the process for %s.", measure.Thousands(float64(held)), managers, waiters, window)
	t := result.Table{First: "Idle", Columns: []result.Column{
		{Name: "Redis, of a core", Unit: result.Percent},
		{Name: "the measured process", Unit: result.Percent},
		{Name: "a manager's share", Unit: result.Percent},
		{Name: "scripts", Unit: result.PerSecond},
	}}
	for _, c := range []struct {
		name string
		spec spec
		ask  request
	}{
		{measure.Thousands(float64(held)) + " held locks", spec{Setting: setting{Library: ours}}, request{Do: "hold", Keys: held}},
		{fmt.Sprintf("%d waiters of %d managers", managers*waiters, managers), spec{Setting: setting{Library: ours}, Lockers: managers}, request{Do: "wait", Workers: waiters}},
		{fmt.Sprintf("%d fair waiters of %d managers", managers*waiters, managers), spec{Setting: setting{Library: ours, Fair: true}, Lockers: managers}, request{Do: "wait", Workers: waiters}},
	} {
		c.spec.Addr, c.spec.Lockers = redis.Addr(), max(c.spec.Lockers, 1)
		server, process, scripts, err := idle(ctx, redis, c.spec, c.ask, window)
		if err != nil {
			return err
		}
		each := process / float64(c.spec.Lockers)
		t.Rows = append(t.Rows, result.Row{Name: c.name, Figures: result.Figures(measure.FourFigures(server), measure.FourFigures(process), measure.FourFigures(each), measure.FourFigures(scripts))})
		b.Target(c.name+": Redis, of a core", result.Percent, result.AtMost, 3, server)
		b.Target(c.name+": a manager, of a core", result.Percent, result.AtMost, 3, each)
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

// idle measures shares of a core in percent, and scripts a second.
func idle(ctx context.Context, redis *system.Redis, s spec, r request, window time.Duration) (server, process, scripts float64, err error) {
	// A process that ends leaves its locks to their leases.
	if err := redis.Client.Do(ctx, redis.Client.B().Flushall().Build()).Error(); err != nil {
		return 0, 0, 0, err
	}
	own, err := open(ctx, s.Setting, redis.Addr())
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	children, err := startChildren(ctx, 1, s)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, end(children)) }()
	var h hold
	if r.Do == "wait" {
		if h, err = lockNow(ctx, own, keyName(0)); err != nil {
			return 0, 0, 0, err
		}
	}
	if _, err := ask(ctx, children[0], r); err != nil {
		return 0, 0, 0, err
	}
	time.Sleep(min(window/10, time.Second)) // until all stand
	begin := time.Now()
	before, usedBefore, err := usage(ctx, redis, children[0])
	if err != nil {
		return 0, 0, 0, err
	}
	if err := measure.SleepUntil(ctx, begin.Add(window)); err != nil {
		return 0, 0, 0, err
	}
	after, used, err := usage(ctx, redis, children[0])
	if err != nil {
		return 0, 0, 0, err
	}
	seconds := time.Since(begin).Seconds()
	if r.Do == "wait" {
		if err := h.unlock(); err != nil {
			return 0, 0, 0, err
		}
		if _, err := ask(ctx, children[0], request{Do: "got"}); err != nil {
			return 0, 0, 0, err
		}
	}
	return 100 * (after.CPUSeconds - before.CPUSeconds) / seconds, 100 * (used - usedBefore) / seconds, after.Rate(before, "evalsha", seconds), nil
}

// usage is what Redis and the processes have used so far.
func usage(ctx context.Context, redis *system.Redis, children ...*measure.Child) (server measure.RedisStat, processes float64, err error) {
	for _, c := range children {
		used, failed := measure.CPUSeconds(c.PID())
		processes, err = processes+used, errors.Join(err, failed)
	}
	server, failed := measure.ReadRedisStat(ctx, redis.Client)
	return server, processes, errors.Join(err, failed)
}
