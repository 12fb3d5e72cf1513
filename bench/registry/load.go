package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const loadService = "load"

func runLoad(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) (err error) {
	n := tool.Sized(b, 10_000, 1000)
	b.Say("A client that is connected has its first list of a service of %s instances; medians of %d rounds, in turns. v1 reads the zset and then each hash, one after the other, or all hashes in one pipeline, which its seed does not do. Round trips are calls of EVALSHA, EVAL and SUBSCRIBE, and of ZRANGEBYSCORE and HGETALL, by Redis' own count; a pipeline is one.", measure.Thousands(float64(n)), l.rounds)
	others, err := startProvision(ctx, provision{URL: redis.URL(), Service: loadService, Count: n, Interval: quiet})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, others.End()) }()
	opened, err := openOnRedis(ctx, redis.Addr(), true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	old := opened.(*onRedis)
	for i := range n {
		if err := old.Register(ctx, loadService, fmt.Sprintf("instance-%06d", i)); err != nil {
			return err
		}
	}
	kinds := []struct {
		name     string
		load     func() (time.Duration, error)
		commands []string
	}{
		{freeslot, func() (time.Duration, error) { return loadOurs(ctx, redis, n) }, []string{"evalsha", "eval", "subscribe", "ssubscribe"}},
		{"v1, one after the other", func() (time.Duration, error) { return loadV1(ctx, old, n, false) }, []string{"zrangebyscore", "hgetall"}},
		{"v1, pipelined", func() (time.Duration, error) { return loadV1(ctx, old, n, true) }, nil},
	}
	times, trips := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for range l.rounds {
		for i, k := range kinds {
			before, err := measure.ReadRedisStat(ctx, redis.Client)
			if err != nil {
				return err
			}
			took, err := k.load()
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			after, err := measure.ReadRedisStat(ctx, redis.Client)
			if err != nil {
				return err
			}
			calls := 0.0
			for _, c := range k.commands {
				calls += after.Commands[c].Calls - before.Commands[c].Calls
			}
			if k.commands == nil {
				calls = 2
			}
			times[i], trips[i] = append(times[i], float64(took.Microseconds())/1000), append(trips[i], calls)
		}
	}
	t := result.Table{First: "First list", Columns: []result.Column{{Name: "time", Unit: result.Milliseconds}, {Name: "round trips"}}}
	for i, k := range kinds {
		t.Rows = append(t.Rows, result.Row{Name: k.name, Figures: result.Figures(measure.FourFigures(measure.Median(times[i])), measure.Median(trips[i]))})
	}
	b.Result.Tables = []result.Table{t}
	b.Target("first load of 10,000 instances: round trips of v1 / ours", result.Times, result.AtLeast, 100, measure.Median(trips[1])/measure.Median(trips[0]))
	b.Target("first load of 10,000 instances: time of v1 / ours", result.Times, result.AtLeast, 4, measure.Median(times[1])/measure.Median(times[0]))
	note(b, fmt.Sprintf("v1 with a pipeline: %.2fx", measure.Median(times[2])/measure.Median(times[0])))
	return nil
}

func loadOurs(ctx context.Context, redis *system.Redis, n int) (took time.Duration, err error) {
	c, err := startConsumer(ctx, redis.URL(), 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stopConsumer(c)) }()
	begin := time.Now()
	list, err := c.AllInstances(ctx, loadService)
	took = time.Since(begin)
	if err == nil && len(list.Instances) != n {
		err = fmt.Errorf("%d instances, expected %d", len(list.Instances), n)
	}
	return took, err
}

func loadV1(ctx context.Context, o *onRedis, n int, pipelined bool) (took time.Duration, err error) {
	begin := time.Now()
	var got int
	if pipelined {
		got, err = o.readPipelined(ctx, loadService)
	} else {
		var instances []map[string]string
		instances, err = o.read(ctx, loadService)
		got = len(instances)
	}
	took = time.Since(begin)
	if err == nil && got != n {
		err = fmt.Errorf("%d instances, expected %d", got, n)
	}
	return took, err
}

// readPipelined is read with all hashes at once.
func (o *onRedis) readPipelined(ctx context.Context, service string) (count int, err error) {
	ids, err := o.commands.Do(ctx, o.b().Zrangebyscore().Key(beatsKey(service)).Min("-inf").Max("+inf").Build()).AsStrSlice()
	if err != nil {
		return 0, err
	}
	commands := make([]rueidis.Completed, len(ids))
	for i, id := range ids {
		commands[i] = o.b().Hgetall().Key(hashKey(service, id)).Build()
	}
	for _, r := range o.commands.DoMulti(ctx, commands...) {
		if _, err := r.AsStrMap(); err != nil {
			return 0, err
		}
		count++
	}
	return count, nil
}
