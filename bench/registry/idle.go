package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/registry"
)

const (
	files         = 15_000 // connections
	followedEach  = 20
	idleInstances = 5 // of a service
	idleTimeout   = 30 * time.Second
	lookEvery     = idleTimeout / 10
	monitorLimit  = 10 * time.Second
	heapService   = "heap"
)

func runIdle(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) {
	consumers, services := tool.Sized(b, 5000, 50), tool.Sized(b, 1000, 40)
	limit := tool.Must(measure.RaiseFiles(3 * files))
	consumers = min(consumers, int(limit-1000)/2)
	window := tool.Sized(b, 6*l.Window, 3*l.Window)
	b.Say("%s consumers follow %d of %s services each, with T %s, and nothing changes: processor time of Redis for %s. "+
		"They are simulated, since so many do not fit into the memory of a test machine: each has two connections, one with "+
		"its subscriptions, and one on which it sends, each %s, jittered, the call of a real consumer, as MONITOR has shown "+
		"it. %d instances of each service beat each 10 s.", measure.Thousands(consumers), followedEach,
		measure.Thousands(services), idleTimeout, window, lookEvery, idleInstances)
	t := result.NewTable("At rest", "Redis, of a core [%]", "looks [/s]")
	share, looks := idle(ctx, redis, consumers, services, window)
	name := fmt.Sprintf("%s consumers x %d services", measure.Thousands(consumers), followedEach)
	t.Add(name, share, looks)
	b.Target(name+" at rest: Redis, of a core", result.Percent, result.AtMost, 15, share)

	n := tool.Sized(b, 100_000, 2000)
	b.Say("A consumer follows a service of %s instances with three labels: what the live heap of its process grows by.",
		measure.Thousands(n))
	heap, memory := heapOf(ctx, redis, n), result.NewTable("Memory", "live heap [MiB]")
	memory.Add("a consumer of "+measure.Thousands(n)+" instances", heap)
	b.Result.Tables = []result.Table{t, memory}
	b.Target("100,000 instances in a consumer: live heap", result.MiB, result.AtMost, 150, heap)
}

func idleService(i int) string { return "idle-" + strconv.Itoa(i) }

// idle is Redis' share of a core in percent, and how many looks a second it answered.
func idle(ctx context.Context, redis *system.Redis, consumers, services int, window time.Duration) (share, looks float64) {
	flush(ctx, redis)
	provider := tool.Must(startProvider(ctx, redis.URL()))
	defer tool.End(func() error { return leave(provider) })
	for i := range services {
		tool.Check(registerAll(ctx, provider, idleService(i), idleInstances, func(r *registry.Registration) {
			r.Interval = registry.DefaultHeartbeatInterval
		}))
	}
	seen := watchConsumer(ctx, redis)
	all, stop := context.WithCancel(ctx)
	var loops sync.WaitGroup
	var answered, failed atomic.Int64
	var conns []net.Conn
	defer func() {
		stop()
		for _, c := range conns {
			_ = c.Close()
		}
		loops.Wait()
	}()
	for i := range consumers {
		look, subscribe := seen.commands(i, services)
		for _, command := range [][]byte{look, subscribe} {
			c := tool.Must(net.Dial("tcp", redis.Addr()))
			conns = append(conns, c)
			tool.Must(c.Write(command))
		}
		conn := conns[len(conns)-2]
		loops.Go(func() {
			if err := lookOn(all, conn, look, &answered); err != nil && all.Err() == nil {
				failed.Add(1)
			}
		})
	}
	tool.Sleep(ctx, lookEvery) // until looks are spread
	m, done := tool.Must(system.NewMeter(ctx, nil, redis.PID())), answered.Load()
	tool.Sleep(ctx, window)
	used := tool.Must(m.Spent(ctx))
	if n := failed.Load(); n > 0 {
		tool.Check(fmt.Errorf("%d of %d consumers failed", n, consumers))
	}
	return used.OfCore(used.Processes), float64(answered.Load()-done) / used.Seconds
}

// lookOn sends looks and reads the answers until ctx ends and the connection is closed.
func lookOn(ctx context.Context, conn net.Conn, look []byte, answered *atomic.Int64) error {
	in := bufio.NewReaderSize(conn, 2048)
	if _, err := measure.ReadReply(in); err != nil { // the first look has been sent
		return err
	}
	wait := rand.N(lookEvery)
	for measure.SleepUntil(ctx, time.Now().Add(wait)) == nil {
		if _, err := conn.Write(look); err != nil {
			return err
		}
		if _, err := measure.ReadReply(in); err != nil {
			return err
		}
		answered.Add(1)
		wait = lookEvery*9/10 + rand.N(lookEvery/5)
	}
	return nil
}

// pattern is what a real consumer sends: the words of a look, and the name of a channel.
type pattern struct {
	look    []string
	channel string
}

var idleName = regexp.MustCompile(`idle-[0-9]+`)

// watchConsumer reads the words of a real consumer's look and subscription from MONITOR.
func watchConsumer(ctx context.Context, redis *system.Redis) (p pattern) {
	conn := tool.Must(redis.Monitor())
	defer conn.Close()
	tool.Check(conn.SetReadDeadline(time.Now().Add(monitorLimit)))
	c, stop := startConsumer(ctx, redis.URL(), idleTimeout)
	defer tool.End(stop)
	for i := range followedEach {
		tool.Must(c.Subscribe(idleService(i), func(*registry.List) {}))
	}
	lines := bufio.NewScanner(conn)
	for (p.look == nil || p.channel == "") && lines.Scan() {
		words, byScript := system.MonitorWords(lines.Text())
		switch {
		case byScript || len(words) < 2:
		case words[0] == "EVALSHA" && len(words) == 3+4*followedEach+1 && words[2] == strconv.Itoa(2*followedEach):
			p.look = words
		case strings.HasSuffix(words[0], "SUBSCRIBE") && idleName.MatchString(words[1]):
			p.channel = words[1]
		}
	}
	if p.look == nil || p.channel == "" {
		err := errors.Join(lines.Err(), io.EOF)
		tool.Check(fmt.Errorf("MONITOR showed no look of %d services or no subscription: %w", followedEach, err))
	}
	// The first list comes after the look: now the server has its script, too.
	tool.Must(c.AllInstances(ctx, idleService(0)))
	return p
}

// commands are the look and the subscription of the i-th consumer. It does not ask for history.
func (p *pattern) commands(i, services int) (look, subscribe []byte) {
	words, channels := append([]string(nil), p.look[:3]...), []string{"SUBSCRIBE"}
	for k := range followedEach {
		service := idleService((i*followedEach + k) % services)
		for _, key := range p.look[3:5] {
			words = append(words, idleName.ReplaceAllString(key, service))
		}
		channels = append(channels, idleName.ReplaceAllString(p.channel, service))
	}
	words = append(words, "0")
	words = append(words, p.look[3+2*followedEach+1:]...)
	return measure.AppendCommand(nil, words...), measure.AppendCommand(nil, channels...)
}

// heapOf is the live heap of a consumer, in MiB.
func heapOf(ctx context.Context, redis *system.Redis, n int) float64 {
	flush(ctx, redis)
	others := startProvision(ctx, provision{URL: redis.URL(), Service: heapService, Count: n, Interval: quiet})
	defer tool.End(others.End)
	before := measure.LiveHeap()
	c, stop := startConsumer(ctx, redis.URL(), 0)
	defer tool.End(stop)
	list := tool.Must(c.AllInstances(ctx, heapService))
	list.Healthy()
	time.Sleep(time.Second) // until the pages are done with
	mib := (measure.LiveHeap() - before) / (1 << 20)
	runtime.KeepAlive(list)
	checkCount(len(list.Instances), n)
	return mib
}

func checkCount(got, expected int) {
	if got != expected {
		tool.Check(fmt.Errorf("%d instances, expected %d", got, expected))
	}
}
