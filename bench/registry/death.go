package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/centre"
)

const (
	deathService   = "death"
	deathConsumers = 4
	// survivors keep those that died from being the last resort, and below the share of failed
	// checks that a replica doubts.
	survivors = 40
	// checksStand is until all targets are known to be checked.
	checksStand = 6 * time.Second
	pollEvery   = 2 * time.Millisecond
	// tooLate is beyond every target.
	tooLate = time.Minute
)

func runDeath(ctx context.Context, b *tool.Bench, redis *system.Redis, _ length) {
	timeout, beat := tool.Sized(b, 10*time.Second, time.Second), tool.Sized(b, 3*time.Second, 300*time.Millisecond)
	deaths, each := tool.Sized(b, 8, 2), 4
	b.Say("%d provider processes of %d instances each are killed (kill -9), and %d instances of another one live: until no "+
		"instance of a process is in any healthy list of %d consumers; the longest of %d. By heartbeats: T %s, a beat each %s; "+
		"the processes began apart from each other and die at once. By checks: TCP, each second, two failures, made by the "+
		"centre of one replica; the processes die one after the other.",
		deaths, each, survivors, deathConsumers, deaths, timeout, beat)
	t := result.NewTable("Out of every healthy list", "p50 [ms]", "longest [ms]", "processes")
	for _, c := range []struct {
		name  string
		check bool
		limit time.Duration
	}{{"by heartbeats", false, timeout + 1500*time.Millisecond}, {"by checks", true, 3500 * time.Millisecond}} {
		p := provision{URL: redis.URL(), Service: deathService, Count: each, Interval: beat, Check: c.check}
		took := die(ctx, redis, deaths, p, timeout)
		longest := measure.Quantile(took, 1)
		t.Add(c.name, measure.Median(took), longest, len(took))
		b.Target("kill -9 to out of every healthy list, "+c.name, result.Milliseconds, result.AtMost,
			float64(c.limit.Milliseconds()), longest)
	}
	b.Result.Tables = []result.Table{t}
}

// die kills processes, and returns for each how many ms its instances stayed.
func die(ctx context.Context, redis *system.Redis, deaths int, p provision, timeout time.Duration) (took []float64) {
	flush(ctx, redis)
	alive := p
	alive.Prefix, alive.Count = "alive-", survivors
	defer tool.End(alive.hold(ctx))
	var children tool.Children
	defer tool.End(children.Kill)
	for i := range deaths {
		p.Prefix = fmt.Sprintf("dead-%d-", i)
		children = append(children, startProvision(ctx, p))
		time.Sleep(p.Interval / time.Duration(deaths))
	}
	var consumers []*registry.Consumer
	for range deathConsumers {
		c, stop := startConsumer(ctx, redis.URL(), timeout)
		defer tool.End(stop)
		tool.Must(c.AllInstances(ctx, p.Service))
		consumers = append(consumers, c)
	}
	if p.Check {
		own := centre.New(centre.Config{
			Self: "bench", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		}, storeOf(redis), zap.NewNop(), nil)
		defer tool.End(startCentre(ctx, own))
		own.SetReplicas([]string{"bench"})
		time.Sleep(checksStand)
	}
	for i := 0; i < len(children); i++ {
		begin, first := time.Now(), i
		for { // all at once, unless checks tell
			tool.Check(children[i].Cmd.Process.Kill())
			if p.Check || i == len(children)-1 {
				break
			}
			i++
		}
		for k := first; k <= i; k++ {
			gone := until(ctx, consumers, p.Service, fmt.Sprintf("dead-%d-", k), begin)
			took = append(took, measure.Milliseconds(gone))
		}
	}
	return took
}

// until is how long after begin the last healthy list has lost all ids with this prefix.
func until(ctx context.Context, consumers []*registry.Consumer, service, prefix string, begin time.Time) time.Duration {
	for time.Since(begin) < tooLate {
		there := false
		for _, c := range consumers {
			for _, in := range tool.Must(c.HealthyInstances(ctx, service)).Instances {
				there = there || strings.HasPrefix(in.ID, prefix)
			}
		}
		if !there {
			return time.Since(begin)
		}
		time.Sleep(pollEvery)
	}
	tool.Check(fmt.Errorf("instances %s* are in a healthy list after %s", prefix, tooLate))
	return 0
}

func storeOf(redis *system.Redis) *registry.Store {
	return registry.NewStore(redis.Client, registry.Prefix(registry.DefaultKeyPrefix, ""), false, zap.NewNop())
}

func startCentre(ctx context.Context, c *centre.Centre) (stop func() error) {
	tool.Check(c.Start(ctx))
	return bounded(c.Stop)
}
