package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// breaker carries out a plan.
type breaker struct {
	*fleet
	// crash has a client go away.
	crash func(name string)
	// more are actions that a test brings.
	more map[Action]func(ctx context.Context, p Breakage)
}

// run carries out the plan, each target's breakages in order, and returns when all is repaired.
func (b *breaker) run(ctx context.Context, plan []Breakage) {
	byTarget := map[string][]Breakage{}
	for _, p := range plan {
		byTarget[p.Target] = append(byTarget[p.Target], p)
	}
	begin := time.Now()
	var targets sync.WaitGroup
	for _, list := range byTarget {
		targets.Go(func() {
			for _, p := range list {
				if !pause(ctx, p.At-time.Since(begin)) {
					return
				}
				b.rec.Add(Event{Kind: Fault, Who: p.Target, Note: p.String()})
				b.breakOne(ctx, p)
				b.rec.Add(Event{Kind: Fault, Who: p.Target, Note: "mended"})
			}
		})
	}
	targets.Wait()
}

// pause is the time that a plan wants to pass; false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *breaker) breakOne(ctx context.Context, p Breakage) {
	if do := b.more[p.Action]; do != nil {
		do(ctx, p)
		return
	}
	switch {
	case p.Action == Crash:
		b.crash(p.Target)
	case p.Target == redisTarget:
		b.breakRedis(ctx, p)
	case strings.HasPrefix(p.Target, wayPrefix):
		b.breakWay(ctx, p)
	case p.Action == Forget:
		b.forget(ctx, strings.TrimPrefix(p.Target, loadPrefix))
	case p.Action == Drain:
		b.drain(ctx, strings.TrimPrefix(p.Target, drainPrefix), p.For)
	default:
		b.breakProgram(ctx, p)
	}
}

func (b *breaker) breakProgram(ctx context.Context, p Breakage) {
	program := b.programs[p.Target]
	switch p.Action {
	case Kill:
		program.kill()
	case Stop:
		program.stop()
	default:
		program.signal(syscall.SIGSTOP)
		pause(ctx, p.For)
		program.signal(syscall.SIGCONT)
		return
	}
	pause(ctx, p.For)
	program.start()
}

func (b *breaker) breakRedis(ctx context.Context, p Breakage) {
	switch p.Action {
	case Drop:
		for _, kind := range []string{"normal", "pubsub"} {
			limit, cancel := context.WithTimeout(ctx, time.Second)
			if err := b.do(limit, "CLIENT", "KILL", "TYPE", kind); err != nil {
				b.rec.Add(Event{Kind: Fault, Who: p.Target, Note: fmt.Sprintf("no connections killed: %v", err)})
			}
			cancel()
		}
		return
	case Freeze:
		b.redis.Pause()
		pause(ctx, p.For)
		b.redis.Resume()
		return
	case Kill:
		b.redis.Kill()
		pause(ctx, p.For)
	default: // Stop: Restart does it
	}
	b.redis.Restart()
}

// toxics are what a way suffers from, in both directions.
var toxics = map[Action]string{
	Slow:  `{"name":"%[1]s","type":"latency","stream":"%[1]s","attributes":{"latency":80,"jitter":60}}`,
	Hole:  `{"name":"%[1]s","type":"timeout","stream":"%[1]s","attributes":{"timeout":0}}`,
	Reset: `{"name":"%[1]s","type":"reset_peer","stream":"%[1]s","attributes":{"timeout":0}}`,
}

func (b *breaker) breakWay(ctx context.Context, p Breakage) {
	way := b.ways[strings.TrimPrefix(p.Target, wayPrefix)]
	if p.Action == Cut {
		way.Stop()
		pause(ctx, p.For)
		b.open(way)
		return
	}
	for _, stream := range []string{"upstream", "downstream"} {
		if _, err := way.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(toxics[p.Action], stream))); err != nil {
			b.t.Errorf("%s cannot be broken: %v", p.Target, err)
		}
	}
	pause(ctx, p.For)
	b.cure(way)
}

// open starts a way again. A process that is just being started may have its listener for a moment,
// between fork and exec.
func (b *breaker) open(way *toxiproxy.Proxy) {
	var last error
	if redistest.Await(func(context.Context) bool {
		last = way.Start()
		return last == nil
	}) != nil {
		b.t.Errorf("the way of %s does not come back: %v", way.Name, last)
	}
}

func (b *breaker) cure(way *toxiproxy.Proxy) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	way.Toxics.ResetToxics(ctx)
}
