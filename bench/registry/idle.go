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

func runIdle(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) error {
	consumers, services := tool.Sized(b, 5000, 50), tool.Sized(b, 1000, 40)
	limit, err := measure.RaiseFiles(3 * files)
	if err != nil {
		return err
	}
	consumers = min(consumers, int(limit-1000)/2)
	window := tool.Sized(b, 6*l.window, 3*l.window)
	b.Say("%s consumers follow %d of %s services each, with T %s, and nothing changes: processor time of Redis for %s. They are simulated, since so many do not fit into the memory of a test machine: each has two connections, one with its subscriptions, and one on which it sends, each %s, jittered, the call of a real consumer, as MONITOR has shown it. %d instances of each service beat each 10 s.", measure.Thousands(float64(consumers)), followedEach, measure.Thousands(float64(services)), idleTimeout, window, lookEvery, idleInstances)
	t := result.Table{First: "At rest", Columns: []result.Column{{Name: "Redis, of a core", Unit: result.Percent}, {Name: "looks", Unit: result.PerSecond}}}
	share, looks, err := idle(ctx, redis, consumers, services, window)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s consumers x %d services", measure.Thousands(float64(consumers)), followedEach)
	t.Rows = append(t.Rows, result.Row{Name: name, Figures: result.Figures(measure.FourFigures(share), measure.FourFigures(looks))})
	b.Target(name+" at rest: Redis, of a core", result.Percent, result.AtMost, 15, share)

	n := tool.Sized(b, 100_000, 2000)
	b.Say("A consumer follows a service of %s instances with three labels: what the live heap of its process grows by.", measure.Thousands(float64(n)))
	heap, err := heapOf(ctx, redis, n)
	if err != nil {
		return err
	}
	b.Result.Tables = []result.Table{t, {First: "Memory", Columns: []result.Column{{Name: "live heap", Unit: result.MiB}}, Rows: []result.Row{{Name: "a consumer of " + measure.Thousands(float64(n)) + " instances", Figures: result.Figures(measure.FourFigures(heap))}}}}
	b.Target("100,000 instances in a consumer: live heap", result.MiB, result.AtMost, 150, heap)
	return nil
}

func idleService(i int) string { return "idle-" + strconv.Itoa(i) }

// idle is Redis' share of a core in percent, and how many looks a second it answered.
func idle(ctx context.Context, redis *system.Redis, consumers, services int, window time.Duration) (share, looks float64, err error) {
	if err := flush(ctx, redis); err != nil {
		return 0, 0, err
	}
	provider, err := startProvider(ctx, redis.URL())
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, leave(provider)) }()
	for i := range services {
		err := registerAll(ctx, provider, idleService(i), idleInstances, func(r *registry.Registration) { r.Interval = registry.DefaultHeartbeatInterval })
		if err != nil {
			return 0, 0, err
		}
	}
	seen, err := watchConsumer(ctx, redis)
	if err != nil {
		return 0, 0, err
	}
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
			c, err := net.Dial("tcp", redis.Addr())
			if err != nil {
				return 0, 0, err
			}
			conns = append(conns, c)
			if _, err := c.Write(command); err != nil {
				return 0, 0, err
			}
		}
		conn := conns[len(conns)-2]
		loops.Go(func() {
			if err := lookOn(all, conn, look, &answered); err != nil && all.Err() == nil {
				failed.Add(1)
			}
		})
	}
	if err := measure.SleepUntil(ctx, time.Now().Add(lookEvery)); err != nil { // until looks are spread
		return 0, 0, err
	}
	before, err := measure.CPUSeconds(redis.PID())
	if err != nil {
		return 0, 0, err
	}
	begin, done := time.Now(), answered.Load()
	if err := measure.SleepUntil(ctx, begin.Add(window)); err != nil {
		return 0, 0, err
	}
	after, err := measure.CPUSeconds(redis.PID())
	if err != nil {
		return 0, 0, err
	}
	if n := failed.Load(); n > 0 {
		return 0, 0, fmt.Errorf("%d of %d consumers failed", n, consumers)
	}
	seconds := time.Since(begin).Seconds()
	return 100 * (after - before) / seconds, float64(answered.Load()-done) / seconds, nil
}

// lookOn sends looks and reads the answers until ctx ends and the connection is closed.
func lookOn(ctx context.Context, conn net.Conn, look []byte, answered *atomic.Int64) error {
	in := bufio.NewReaderSize(conn, 2048)
	if err := skipReply(in); err != nil { // the first look has been sent
		return err
	}
	wait := rand.N(lookEvery)
	for measure.SleepUntil(ctx, time.Now().Add(wait)) == nil {
		if _, err := conn.Write(look); err != nil {
			return err
		}
		if err := skipReply(in); err != nil {
			return err
		}
		answered.Add(1)
		wait = lookEvery*9/10 + rand.N(lookEvery/5)
	}
	return nil
}

// skipReply reads one reply of RESP 2.
func skipReply(in *bufio.Reader) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // only read where it is a number
	switch line[0] {
	case '-':
		return errors.New(strings.TrimSpace(line))
	case '$':
		if n >= 0 {
			_, err = io.CopyN(io.Discard, in, int64(n+2))
		}
	case '*':
		for ; n > 0 && err == nil; n-- {
			err = skipReply(in)
		}
	}
	return err
}

// pattern is what a real consumer sends: the words of a look, and the name of a channel.
type pattern struct {
	look    []string
	channel string
}

var idleName = regexp.MustCompile(`idle-[0-9]+`)

// watchConsumer reads the words of a real consumer's look and subscription from MONITOR.
func watchConsumer(ctx context.Context, redis *system.Redis) (p pattern, err error) {
	conn, err := net.Dial("tcp", redis.Addr())
	if err != nil {
		return p, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return p, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(monitorLimit)); err != nil {
		return p, err
	}
	c, err := startConsumer(ctx, redis.URL(), idleTimeout)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, stopConsumer(c)) }()
	for i := range followedEach {
		if _, err := c.Subscribe(idleService(i), func(*registry.List) {}); err != nil {
			return p, err
		}
	}
	lines := bufio.NewScanner(conn)
	for (p.look == nil || p.channel == "") && lines.Scan() {
		from, command, _ := strings.Cut(lines.Text(), ` "`)
		words := strings.Split(strings.TrimSuffix(command, `"`), `" "`)
		switch {
		case strings.HasSuffix(from, "lua]") || len(words) < 2:
		case words[0] == "EVALSHA" && len(words) > 2 && words[2] == strconv.Itoa(2*followedEach) && len(words) == 3+2*followedEach+1+2*followedEach:
			p.look = words
		case strings.HasSuffix(words[0], "SUBSCRIBE") && idleName.MatchString(words[1]):
			p.channel = words[1]
		}
	}
	if p.look == nil || p.channel == "" {
		return p, fmt.Errorf("MONITOR showed no look of %d services or no subscription: %w", followedEach, errors.Join(lines.Err(), io.EOF))
	}
	// The first list comes after the look: now the server has its script, too.
	_, err = c.AllInstances(ctx, idleService(0))
	return p, err
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
	return resp(words), resp(channels)
}

func resp(words []string) []byte {
	out := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(w), w)
	}
	return out
}

// heapOf is the live heap of a consumer, in MiB.
func heapOf(ctx context.Context, redis *system.Redis, n int) (mib float64, err error) {
	if err := flush(ctx, redis); err != nil {
		return 0, err
	}
	others, err := startProvision(ctx, provision{URL: redis.URL(), Service: heapService, Count: n, Interval: quiet})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, others.End()) }()
	before := liveHeap()
	c, err := startConsumer(ctx, redis.URL(), 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stopConsumer(c)) }()
	list, err := c.AllInstances(ctx, heapService)
	if err != nil {
		return 0, err
	}
	list.Healthy()
	time.Sleep(time.Second) // until the pages are done with
	mib = float64(liveHeap()-before) / (1 << 20)
	runtime.KeepAlive(list)
	if len(list.Instances) != n {
		return 0, fmt.Errorf("%d instances, expected %d", len(list.Instances), n)
	}
	return mib, nil
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
