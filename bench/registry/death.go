package main

import (
	"context"
	"errors"
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

func runDeath(ctx context.Context, b *tool.Bench, redis *system.Redis, _ length) error {
	timeout, beat := tool.Sized(b, 10*time.Second, time.Second), tool.Sized(b, 3*time.Second, 300*time.Millisecond)
	deaths, each := tool.Sized(b, 8, 2), 4
	b.Say("%d provider processes of %d instances each are killed (kill -9), and %d instances of another one live: until no instance of a process is in any healthy list of %d consumers; the longest of %d. By heartbeats: T %s, a beat each %s; the processes began apart from each other and die at once. By checks: TCP, each second, two failures, made by the centre of one replica; the processes die one after the other.", deaths, each, survivors, deathConsumers, deaths, timeout, beat)
	t := result.Table{First: "Out of every healthy list", Columns: []result.Column{{Name: "p50", Unit: result.Milliseconds}, {Name: "longest", Unit: result.Milliseconds}, {Name: "processes"}}}
	for _, c := range []struct {
		name  string
		check bool
		limit time.Duration
	}{{"by heartbeats", false, timeout + 1500*time.Millisecond}, {"by checks", true, 3500 * time.Millisecond}} {
		took, err := die(ctx, redis, deaths, provision{URL: redis.URL(), Service: deathService, Count: each, Interval: beat, Check: c.check}, timeout)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, result.Row{Name: c.name, Figures: result.Figures(measure.FourFigures(measure.Median(took)), measure.FourFigures(measure.Quantile(took, 1)), float64(len(took)))})
		b.Target("kill -9 to out of every healthy list, "+c.name, result.Milliseconds, result.AtMost, float64(c.limit.Milliseconds()), measure.Quantile(took, 1))
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

// die kills processes, and returns for each how many ms its instances stayed.
func die(ctx context.Context, redis *system.Redis, deaths int, p provision, timeout time.Duration) (took []float64, err error) {
	if err := flush(ctx, redis); err != nil {
		return nil, err
	}
	alive := p
	alive.Prefix, alive.Count = "alive-", survivors
	stop, err := alive.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var children []*measure.Child
	defer func() {
		for _, c := range children {
			_ = c.Cmd.Process.Kill()
			_ = c.End() // it was killed
		}
	}()
	for i := range deaths {
		p.Prefix = fmt.Sprintf("dead-%d-", i)
		c, err := startProvision(ctx, p)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
		time.Sleep(p.Interval / time.Duration(deaths))
	}
	var consumers []*registry.Consumer
	for range deathConsumers {
		c, err := startConsumer(ctx, redis.URL(), timeout)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stopConsumer(c)) }()
		if _, err := c.AllInstances(ctx, p.Service); err != nil {
			return nil, err
		}
		consumers = append(consumers, c)
	}
	if p.Check {
		own := centre.New(centre.Config{Self: "bench", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, storeOf(redis), zap.NewNop(), nil)
		if err := own.Start(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stopCentre(own)) }()
		own.SetReplicas([]string{"bench"})
		time.Sleep(checksStand)
	}
	for i := 0; i < len(children); i++ {
		begin, first := time.Now(), i
		for { // all at once, unless checks tell
			if err := children[i].Cmd.Process.Kill(); err != nil {
				return nil, err
			}
			if p.Check || i == len(children)-1 {
				break
			}
			i++
		}
		for k := first; k <= i; k++ {
			d, err := until(ctx, consumers, p.Service, fmt.Sprintf("dead-%d-", k), begin)
			if err != nil {
				return nil, err
			}
			took = append(took, float64(d.Microseconds())/1000)
		}
	}
	return took, nil
}

// until is how long after begin the last healthy list has lost all ids with this prefix.
func until(ctx context.Context, consumers []*registry.Consumer, service, prefix string, begin time.Time) (time.Duration, error) {
	for time.Since(begin) < tooLate {
		there := false
		for _, c := range consumers {
			list, err := c.HealthyInstances(ctx, service)
			if err != nil {
				return 0, err
			}
			for _, in := range list.Instances {
				there = there || strings.HasPrefix(in.ID, prefix)
			}
		}
		if !there {
			return time.Since(begin), nil
		}
		time.Sleep(pollEvery)
	}
	return 0, fmt.Errorf("instances %s* are in a healthy list after %s", prefix, tooLate)
}

func storeOf(redis *system.Redis) *registry.Store {
	return registry.NewStore(redis.Client, registry.Prefix(registry.DefaultKeyPrefix, ""), false, zap.NewNop())
}

func stopCentre(c *centre.Centre) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return c.Stop(ctx)
}
