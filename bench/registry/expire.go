package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/registry/centre"
)

const (
	expireService = "expire"
	// slowFrom is from where on commands are noted, so that the longest is among them.
	slowFrom = 200 * time.Microsecond
)

func runExpire(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) {
	n, limit := tool.Sized(b, 10_000, 500), tool.Sized(b, 5*time.Second, time.Second)
	rounds := min(l.Rounds, 3)
	b.Say("A process with %s instances of a service is killed, and the centre of a replica cleans up each eighth of a limit "+
		"of %s: the guard holds for two limits, then all are due. A consumer follows the service. From the kill until the "+
		"consumer's list is empty, by SLOWLOG: the longest command of %d rounds. Its time is by the clock, so it has what "+
		"other processes took of the core.", measure.Thousands(n), limit, rounds)
	t := result.NewTable("Expiry at once", "longest command [ms]", "commands over 1 ms", "kill to empty [ms]")
	longest := 0.0
	for round := range rounds {
		took := expireOnce(ctx, redis, n, limit)
		worst, over := readSlowlog(ctx, redis)
		longest = max(longest, worst)
		t.Add(fmt.Sprintf("round %d", round+1), result.Figure{worst}, over, float64(took.Milliseconds()))
		b.Progress("round %d of %d", round+1, rounds)
	}
	b.Result.Tables = []result.Table{t}
	b.Target("10,000 instances expire at once: longest command", result.Milliseconds, result.AtMost, 5, longest)
}

func expireOnce(ctx context.Context, redis *system.Redis, n int, limit time.Duration) (took time.Duration) {
	flush(ctx, redis)
	provider := startProvision(ctx, provision{URL: redis.URL(), Service: expireService, Count: n, Interval: limit / 4})
	defer tool.End((&tool.Children{provider}).Kill)
	store := storeOf(redis)
	every := limit / 4
	tool.Check(store.SetCleanup(ctx, expireService, &limit, &every))
	defer tool.End(startCentre(ctx, centre.New(centre.Config{Self: "bench", Cleanup: limit / 8}, store, zap.NewNop(), nil)))
	consumer, stop := startConsumer(ctx, redis.URL(), limit/2)
	defer tool.End(stop)
	tool.Must(consumer.AllInstances(ctx, expireService))
	for _, words := range [][]string{
		{"CONFIG", "SET", "slowlog-log-slower-than", fmt.Sprint(slowFrom.Microseconds()), "slowlog-max-len", "100000"},
		{"SLOWLOG", "RESET"},
	} {
		tool.Check(redis.Client.Do(ctx, redis.Client.B().Arbitrary(words...).Build()).Error())
	}
	tool.Check(provider.Cmd.Process.Kill())
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		list := tool.Must(consumer.AllInstances(ctx, expireService))
		took = time.Since(begin)
		if len(list.Instances) == 0 {
			return took
		}
		if took > 2*tooLate {
			tool.Check(fmt.Errorf("%d instances are left after %s, state %s: %s", len(list.Instances), took, list.State, list.Why))
		}
	}
}

// readSlowlog is the longest command in ms, and how many took longer than 1 ms.
func readSlowlog(ctx context.Context, redis *system.Redis) (worst float64, over int) {
	command := redis.Client.B().Arbitrary("SLOWLOG", "GET", "-1").Build()
	for _, e := range tool.Must(redis.Client.Do(ctx, command).ToArray()) {
		fields := tool.Must(e.ToArray())
		if len(fields) < 3 {
			tool.Check(errors.New("an entry of SLOWLOG cannot be read"))
		}
		us := tool.Must(fields[2].AsInt64())
		worst = max(worst, float64(us)/1000)
		if us > 1000 {
			over++
		}
	}
	return worst, over
}
