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

func runExpire(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) (err error) {
	n, limit := tool.Sized(b, 10_000, 500), tool.Sized(b, 5*time.Second, time.Second)
	rounds := min(l.rounds, 3)
	b.Say("A process with %s instances of a service is killed, and the centre of a replica cleans up each eighth of a limit of %s: the guard holds for two limits, then all are due. A consumer follows the service. From the kill until the consumer's list is empty, by SLOWLOG: the longest command of %d rounds. Its time is by the clock, so it has what other processes took of the core.", measure.Thousands(float64(n)), limit, rounds)
	t := result.Table{First: "Expiry at once", Columns: []result.Column{{Name: "longest command", Unit: result.Milliseconds}, {Name: "commands over 1 ms"}, {Name: "kill to empty", Unit: result.Milliseconds}}}
	longest := 0.0
	for round := range rounds {
		worst, over, took, err := expireOnce(ctx, redis, n, limit)
		if err != nil {
			return err
		}
		longest = max(longest, worst)
		t.Rows = append(t.Rows, result.Row{Name: fmt.Sprintf("round %d", round+1), Figures: result.Figures(worst, float64(over), measure.FourFigures(float64(took.Milliseconds())))})
		b.Progress("round %d of %d", round+1, rounds)
	}
	b.Result.Tables = []result.Table{t}
	b.Target("10,000 instances expire at once: longest command", result.Milliseconds, result.AtMost, 5, longest)
	return nil
}

func expireOnce(ctx context.Context, redis *system.Redis, n int, limit time.Duration) (worst float64, over int, took time.Duration, err error) {
	if err := flush(ctx, redis); err != nil {
		return 0, 0, 0, err
	}
	c, err := startProvision(ctx, provision{URL: redis.URL(), Service: expireService, Count: n, Interval: limit / 4})
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { _ = c.End() }() // it is killed
	defer func() { _ = c.Cmd.Process.Kill() }()
	store := storeOf(redis)
	every := limit / 4
	if err := store.SetCleanup(ctx, expireService, &limit, &every); err != nil {
		return 0, 0, 0, err
	}
	own := centre.New(centre.Config{Self: "bench", Cleanup: limit / 8}, store, zap.NewNop(), nil)
	if err := own.Start(ctx); err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, stopCentre(own)) }()
	consumer, err := startConsumer(ctx, redis.URL(), limit/2)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, stopConsumer(consumer)) }()
	if _, err := consumer.AllInstances(ctx, expireService); err != nil {
		return 0, 0, 0, err
	}
	if err := slowlog(ctx, redis); err != nil {
		return 0, 0, 0, err
	}
	if err := c.Cmd.Process.Kill(); err != nil {
		return 0, 0, 0, err
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		list, err := consumer.AllInstances(ctx, expireService)
		if err != nil {
			return 0, 0, 0, err
		}
		took = time.Since(begin)
		if len(list.Instances) == 0 {
			break
		}
		if took > 2*tooLate {
			return 0, 0, 0, fmt.Errorf("%d instances are left after %s, state %s: %s", len(list.Instances), took, list.State, list.Why)
		}
	}
	worst, over, err = readSlowlog(ctx, redis)
	return worst, over, took, err
}

func slowlog(ctx context.Context, redis *system.Redis) error {
	for _, words := range [][]string{
		{"CONFIG", "SET", "slowlog-log-slower-than", fmt.Sprint(slowFrom.Microseconds()), "slowlog-max-len", "100000"},
		{"SLOWLOG", "RESET"},
	} {
		if err := redis.Client.Do(ctx, redis.Client.B().Arbitrary(words...).Build()).Error(); err != nil {
			return err
		}
	}
	return nil
}

// readSlowlog is the longest command in ms, and how many took longer than 1 ms.
func readSlowlog(ctx context.Context, redis *system.Redis) (worst float64, over int, err error) {
	entries, err := redis.Client.Do(ctx, redis.Client.B().Arbitrary("SLOWLOG", "GET", "-1").Build()).ToArray()
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		fields, err := e.ToArray()
		if err != nil || len(fields) < 3 {
			return 0, 0, errors.Join(errors.New("an entry of SLOWLOG cannot be read"), err)
		}
		us, err := fields[2].AsInt64()
		if err != nil {
			return 0, 0, err
		}
		worst = max(worst, float64(us)/1000)
		if us > 1000 {
			over++
		}
	}
	return worst, over, nil
}
