package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/away"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/peers/result"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	scaleInFlight = 512
	scaleMasters  = 3
	// scaleRounds are medians.
	scaleRounds = 3
	// scaleProcess is how many nodes a process has that puts each of them at a distance: it may not have more files.
	scaleProcess = 2500
)

// scale measures what a job costs as the system grows.
func (b *bench) scale(ctx context.Context) error {
	begin := time.Now()
	out := &result.Scale{}
	point := func(p result.ScalePoint, measureIt func(context.Context, *result.ScalePoint) error) error {
		if err := measureIt(ctx, &p); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.Error = err.Error()
		}
		out.Points = append(out.Points, p)
		b.say("%s %d, %s, %d us away: %.2f us a job in Redis, %s jobs/s %s", p.What, p.Value, p.Load, p.AwayUS, p.RedisUs, measure.Thousands(p.JobsPerSecond), p.Error)
		return nil
	}
	for _, distance := range []time.Duration{0, awayBy} {
		short := b.short && distance > 0
		for _, nodes := range sized(short, []int{100}, []int{10, 100, 1000, 10_000}) {
			for _, how := range []string{result.Alone, result.Saturated} {
				p := result.ScalePoint{What: "nodes", Value: nodes, Load: how, AwayUS: distance.Microseconds()}
				if err := point(p, func(ctx context.Context, p *result.ScalePoint) error { return b.scaleNodes(ctx, p, distance) }); err != nil {
					return err
				}
			}
		}
		for _, replicas := range sized(short, []int{1}, []int{1, 2, 3, 4}) {
			p := result.ScalePoint{What: "replicas", Value: replicas, Load: result.Saturated, AwayUS: distance.Microseconds()}
			if err := point(p, func(ctx context.Context, p *result.ScalePoint) error { return b.scaleReplicas(ctx, p, distance) }); err != nil {
				return err
			}
		}
	}
	for _, distance := range []time.Duration{0, awayBy} {
		for _, cells := range sized(b.short, []int{1, 16}, []int{1, 2, 4, 8, 16}) {
			for _, how := range []string{result.Alone, result.Saturated} {
				p := result.ScalePoint{What: "cells", Value: cells, Load: how, AwayUS: distance.Microseconds()}
				if err := point(p, func(ctx context.Context, p *result.ScalePoint) error { return b.scaleCells(ctx, p, distance) }); err != nil {
					return err
				}
			}
		}
	}
	out.Run = b.runNow(begin)
	b.results.Scale = out
	return nil
}

func requestOf(how string) load.Request {
	if how == result.Alone {
		return load.Request{Loop: load.Closed, InFlight: 1}
	}
	return load.Request{Loop: load.Closed, InFlight: scaleInFlight}
}

// scaleNodes has nodes of one connection each, which send no heartbeats: what is counted is jobs.
func (b *bench) scaleNodes(ctx context.Context, p *result.ScalePoint, distance time.Duration) (err error) {
	e := entries()[0]
	processes := 1
	if distance > 0 {
		processes = max(1, p.Value/scaleProcess)
	}
	setting := one(fmt.Sprintf("-nodes %d -slots %d -lean -process %s", p.Value/processes, max(1, 4096/p.Value), thisProcess), "", 0, 1)
	setting.Processes = processes
	s, err := b.start(ctx, shape{entry: &e, setting: setting, aof: aofOff, away: distance, workersAway: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return b.scalePoint(ctx, s.ask, []rueidis.Client{s.stats}, requestOf(p.Load), p)
}

// scaleReplicas has replicas as processes, and their clients submit batches: that loads replicas the most.
func (b *bench) scaleReplicas(ctx context.Context, p *result.ScalePoint, distance time.Duration) (err error) {
	e := entries()[2]
	e.schedulers = p.Value
	s, err := b.start(ctx, shape{entry: &e, setting: one("-nodes 16", "-sessions 8", 0, 1), aof: aofOff, away: distance})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := requestOf(p.Load)
	r.Batch = 64
	return b.scalePoint(ctx, s.ask, []rueidis.Client{s.stats}, r, p)
}

// scalePoint takes medians of a few windows.
func (b *bench) scalePoint(ctx context.Context, ask func(context.Context, load.Request) (*load.Figures, error), stats []rueidis.Client, r load.Request, p *result.ScalePoint) error {
	r.MeasureMS = b.warmUp()
	if _, err := ask(ctx, r); err != nil {
		return err
	}
	r.MeasureMS = max(b.window.Milliseconds()/2, 300)
	var redis, cpu, rate, assign, p50, p99 []float64
	for range scaleRounds {
		before, err := readAll(ctx, stats)
		if err != nil {
			return err
		}
		f, err := ask(ctx, r)
		if err != nil {
			return err
		}
		after, err := readAll(ctx, stats)
		if err != nil {
			return err
		}
		if f.Jobs == 0 {
			return errNoJob
		}
		var usec, seconds float64
		for i := range after {
			seconds += after[i].CPUSeconds - before[i].CPUSeconds
			for _, command := range []string{"evalsha", "xread"} {
				usec += after[i].Commands[command].Usec - before[i].Commands[command].Usec
			}
		}
		n := float64(f.Ended)
		redis, cpu, rate = append(redis, usec/n), append(cpu, seconds*1e6/n), append(rate, f.JobsPerSecond)
		p50, p99 = append(p50, float64(f.Result.P50)), append(p99, float64(f.Result.P99))
		if f.Assign != nil {
			assign = append(assign, float64(f.Assign.P50))
		}
	}
	p.RedisUs, p.CPUUs, p.JobsPerSecond = hundredths(result.Median(redis)), hundredths(result.Median(cpu)), result.Median(rate)
	p.AssignP50, p.ResultP50, p.ResultP99 = int64(result.Median(assign)), int64(result.Median(p50)), int64(result.Median(p99))
	return nil
}

func hundredths(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }

func readAll(ctx context.Context, clients []rueidis.Client) ([]measure.RedisStat, error) {
	out := make([]measure.RedisStat, len(clients))
	for i, c := range clients {
		var err error
		if out[i], err = measure.ReadRedisStat(ctx, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scaleCells spreads cells over a cluster.
func (b *bench) scaleCells(ctx context.Context, p *result.ScalePoint, distance time.Duration) (err error) {
	c, err := startCluster(ctx, distance)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	startCtx, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
	defer cancel()
	flags := []string{"-redis", c.url(), "-cells", strconv.Itoa(p.Value)}
	// The first replica fixes the number of cells; nodes come after it here, and it hears of them by events.
	w, err := measure.StartChild(startCtx, "nodes", b.command("freeslot", append([]string{"worker", "-nodes", "48", "-slots", "128"}, flags...)...), load.Ready)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.End()) }()
	l, err := measure.StartChild(startCtx, "load", b.command("freeslot", append([]string{"load"}, flags...)...), load.Ready)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.End()) }()
	s := &system{load: l}
	return b.scalePoint(ctx, s.ask, c.stats, requestOf(p.Load), p)
}

// cluster is masters without replicas.
type cluster struct {
	servers []*redisserver.Server
	stats   []rueidis.Client
	// proxies are where clients find the servers, in the same order; none where these are not away.
	proxies []*away.Proxy
}

func startCluster(ctx context.Context, distance time.Duration) (_ *cluster, err error) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		return nil, err
	}
	c := new(cluster)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
	defer cancel()
	args := []string{"--cluster", "create"}
	for range scaleMasters {
		s := redisserver.New(redisserver.Config{ExtraArgs: []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--maxclients", redisClients}})
		if err := s.Start(ctx); err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
		args = append(args, s.Addr())
		client, err := redisclient.Commands(redisclient.Config{URL: s.URL(), Name: "bench-stats"})
		if err != nil {
			return nil, err
		}
		c.stats = append(c.stats, client)
		if distance > 0 {
			if err := c.move(ctx, s, client, distance); err != nil {
				return nil, err
			}
		}
	}
	if out, err := exec.CommandContext(ctx, cli, append(args, "--cluster-yes")...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("redis-cli --cluster create: %w: %s", err, lastLine(out))
	}
	return c, c.await(ctx)
}

// move has a server tell the cluster that clients find it at a proxy; the servers find each other directly.
func (c *cluster) move(ctx context.Context, s *redisserver.Server, client rueidis.Client, distance time.Duration) error {
	proxy, err := away.Open(s.Addr(), distance)
	if err != nil {
		return err
	}
	c.proxies = append(c.proxies, proxy)
	_, clients, err := net.SplitHostPort(proxy.Addr())
	if err != nil {
		return err
	}
	_, direct, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(direct)
	if err != nil {
		return err
	}
	return client.Do(ctx, client.B().ConfigSet().ParameterValue().ParameterValue("cluster-announce-port", clients).
		ParameterValue("cluster-announce-bus-port", strconv.Itoa(port+busOffset)).Build()).Error()
}

// busOffset is how far a server's port for the others is from that for clients.
const busOffset = 10_000

// await waits until every master says that the cluster is whole.
func (c *cluster) await(ctx context.Context) error {
	tick := time.NewTicker(postgresPoll)
	defer tick.Stop()
	for _, client := range c.stats {
		for {
			info, err := client.Do(ctx, client.B().ClusterInfo().Build()).ToString()
			if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", scaleMasters)) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the cluster does not form: %w", ctx.Err())
			case <-tick.C:
			}
		}
	}
	return nil
}

func (c *cluster) url() string {
	addrs := make([]string, 0, len(c.servers))
	for _, s := range c.servers {
		addrs = append(addrs, s.Addr())
	}
	for i, p := range c.proxies {
		addrs[i] = p.Addr()
	}
	return "redis://" + addrs[0] + "?addr=" + strings.Join(addrs[1:], "&addr=")
}

func (c *cluster) stop() error {
	for _, client := range c.stats {
		client.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	errs := make([]error, 0, len(c.servers)+len(c.proxies))
	for _, p := range c.proxies {
		errs = append(errs, p.Close())
	}
	for _, s := range c.servers {
		errs = append(errs, s.Stop(ctx))
	}
	return errors.Join(errs...)
}
