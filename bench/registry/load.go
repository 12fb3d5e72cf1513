package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const loadService = "load"

func runLoad(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) {
	n := tool.Sized(b, 10_000, 1000)
	b.Say("A client that is connected has its first list of a service of %s instances; medians of %d rounds, in turns. "+
		"v1 reads the zset and then each hash, one after the other, or all hashes in one pipeline, which its seed does not "+
		"do. Round trips are calls of EVALSHA, EVAL and SUBSCRIBE, and of ZRANGEBYSCORE and HGETALL, by Redis' own count; "+
		"a pipeline is one.", measure.Thousands(n), l.Rounds)
	others := startProvision(ctx, provision{URL: redis.URL(), Service: loadService, Count: n, Interval: quiet})
	defer tool.End(others.End)
	old := tool.Must(openOnRedis(ctx, redis.Addr(), true))
	defer tool.End(old.Close)
	for i := range n {
		tool.Check(old.Register(ctx, loadService, fmt.Sprintf("instance-%06d", i)))
	}
	kinds := []struct {
		name     string
		load     func() time.Duration
		commands []string
	}{
		{freeslot, func() time.Duration { return loadOurs(ctx, redis, n) }, []string{"evalsha", "eval", "subscribe", "ssubscribe"}},
		{"v1, one after the other", func() time.Duration {
			begin := time.Now()
			checkCount(len(tool.Must(old.read(ctx, loadService))), n)
			return time.Since(begin)
		}, []string{"zrangebyscore", "hgetall"}},
		{"v1, pipelined", func() time.Duration {
			begin := time.Now()
			checkCount(old.readPipelined(ctx, loadService), n)
			return time.Since(begin)
		}, nil},
	}
	times, trips := make([][]float64, len(kinds)), make([][]float64, len(kinds))
	for range l.Rounds {
		for i, k := range kinds {
			m := tool.Must(system.NewMeter(ctx, redis))
			took := k.load()
			used := tool.Must(m.Spent(ctx))
			calls := used.Calls(k.commands...)
			if k.commands == nil {
				calls = 2
			}
			times[i], trips[i] = append(times[i], measure.Milliseconds(took)), append(trips[i], calls)
		}
	}
	t := result.NewTable("First list", "time [ms]", "round trips")
	for i, k := range kinds {
		t.Add(k.name, measure.Median(times[i]), result.Figure{measure.Median(trips[i])})
	}
	b.Result.Tables = []result.Table{t}
	against := func(v [][]float64, i int) float64 { return measure.Median(v[i]) / measure.Median(v[0]) }
	b.Target("first load of 10,000 instances: round trips of v1 / ours", result.Times, result.AtLeast, 100, against(trips, 1))
	b.Target("first load of 10,000 instances: time of v1 / ours", result.Times, result.AtLeast, 4, against(times, 1))
	b.Note("v1 with a pipeline: %.2fx", against(times, 2))
}

func loadOurs(ctx context.Context, redis *system.Redis, n int) time.Duration {
	c, stop := startConsumer(ctx, redis.URL(), 0)
	defer tool.End(stop)
	begin := time.Now()
	list := tool.Must(c.AllInstances(ctx, loadService))
	took := time.Since(begin)
	checkCount(len(list.Instances), n)
	return took
}

// readPipelined is read with all hashes at once.
func (o *onRedis) readPipelined(ctx context.Context, service string) (count int) {
	all := o.b().Zrangebyscore().Key(beatsKey(service)).Min("-inf").Max("+inf").Build()
	var commands []rueidis.Completed
	for _, id := range tool.Must(o.commands.Do(ctx, all).AsStrSlice()) {
		commands = append(commands, o.b().Hgetall().Key(hashKey(service, id)).Build())
	}
	for _, r := range o.commands.DoMulti(ctx, commands...) {
		tool.Must(r.AsStrMap())
		count++
	}
	return count
}
