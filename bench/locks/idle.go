package main

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

func runIdle(ctx context.Context, b *tool.Bench, redis *system.Redis, l tool.Length) {
	held, managers, waiters := tool.Sized(b, 10_000, 100), tool.Sized(b, 100, 5), 10
	// Renewals come every 10 s, and the watchdog every 5 s.
	window := tool.Sized(b, 30*l.Window, 3*l.Window)
	b.Say("One process holds %s locks; then %d managers, all in one process, wait for one key with %d waiters each. "+
		"Processor time of Redis' main thread and of the process for %s.", measure.Thousands(held), managers, waiters, window)
	t := result.NewTable("Idle", "Redis, of a core [%]", "the measured process [%]", "a manager's share [%]", "scripts [/s]")
	wait, many := request{Do: "wait", Workers: waiters}, fmt.Sprintf("waiters of %d managers", managers)
	for _, c := range []struct {
		name string
		spec spec
		ask  request
	}{
		{measure.Thousands(held) + " held locks", spec{Lockers: 1}, request{Do: "hold", Keys: held}},
		{fmt.Sprintf("%d %s", managers*waiters, many), spec{Lockers: managers}, wait},
		{fmt.Sprintf("%d fair %s", managers*waiters, many), spec{Setting: setting{Fair: true}, Lockers: managers}, wait},
	} {
		c.spec.Addr, c.spec.Setting.Library = redis.Addr(), ours
		used := idle(ctx, redis, c.spec, c.ask, window)
		server, process := used.OfCore(used.Redis), used.OfCore(used.Processes)
		each := process / float64(c.spec.Lockers)
		t.Add(c.name, server, process, each, used.Rate("evalsha"))
		b.Target(c.name+": Redis, of a core", result.Percent, result.AtMost, 3, server)
		b.Target(c.name+": a manager, of a core", result.Percent, result.AtMost, 3, each)
	}
	b.Result.Tables = []result.Table{t}
}

func idle(ctx context.Context, redis *system.Redis, s spec, r request, window time.Duration) system.Spent {
	// A process that ends leaves its locks to their leases.
	tool.Check(redis.Client.Do(ctx, redis.Client.B().Flushall().Build()).Error())
	own := tool.Must(open(ctx, s.Setting, redis.Addr()))
	defer tool.End(own.close)
	children := startChildren(ctx, 1, s)
	defer tool.End(children.End)
	if r.Do == "wait" {
		h := lockNow(ctx, own, keyName(0))
		defer ask(ctx, (*children)[0], request{Do: "got"})
		defer tool.End(h.unlock)
	}
	ask(ctx, (*children)[0], r)
	time.Sleep(min(window/10, time.Second)) // until all stand
	m := tool.Must(system.NewMeter(ctx, redis, (*children)[0].PID()))
	tool.Sleep(ctx, window)
	return tool.Must(m.Spent(ctx))
}
