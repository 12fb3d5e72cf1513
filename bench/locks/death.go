package main

import (
	"context"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/lock"
)

// standTime is how long a waiter is given to stand in the queue before the next one comes.
const standTime = 50 * time.Millisecond

func runDeath(ctx context.Context, b *tool.Bench, redis *system.Redis, l tool.Length) {
	b.Say("Two processes wait for a fair lock, one after the other. The first is killed (kill -9) or stopped "+
		"(SIGSTOP), and the holder unlocks at once: the time until the second has the lock, the longest of %d rounds.", l.Rounds)
	t := result.NewTable("The next holder's delay", "p50 [ms]", "p99 [ms]", "longest [ms]", "times")
	add := func(name string, delays []float64) {
		at := func(q float64) float64 { return measure.Quantile(delays, q) }
		t.Add(name, at(0.5), at(0.99), at(1), len(delays))
	}
	liveness := float64(lock.DefaultLiveness.Milliseconds())
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		limit  float64
	}{{"killed", syscall.SIGKILL, 50}, {"stopped", syscall.SIGSTOP, liveness + 50}} {
		var delays []float64
		for range l.Rounds {
			delays = append(delays, us(passedOver(ctx, redis, c.signal))/1000)
		}
		name := "waiter in front " + c.name
		add(name, delays)
		b.Target(name+": delay of the next", result.Milliseconds, result.AtMost, c.limit, measure.Quantile(delays, 1))
	}
	keys, validity := tool.Sized(b, 100, 20), tool.Sized(b, 0, lock.MinLease)
	b.Say("A process takes %d locks, 20 ms apart, another one waits for all of them, and the first is killed: "+
		"from the end of each lease in Redis (PEXPIRETIME) until the other one has the lock.", keys)
	delays := deadHolder(ctx, redis, keys, validity)
	add("holder killed, after its lease", delays)
	b.Target("holder killed: p99 of the next holder's delay after the lease", result.Milliseconds, result.AtMost, 30,
		measure.Quantile(delays, 0.99))
	b.Result.Tables = []result.Table{t}
}

// passedOver is how long a waiter waits from the release on, where the one in front got that
// signal.
func passedOver(ctx context.Context, redis *system.Redis, signal syscall.Signal) time.Duration {
	s := setting{Library: ours, Fair: true}
	own := tool.Must(open(ctx, s, redis.Addr()))
	defer tool.End(own.close)
	front, next := startChildren(ctx, 1, spec{Addr: redis.Addr(), Setting: s}), startChildren(ctx, 1, spec{Addr: redis.Addr(), Setting: s})
	defer tool.End(next.End)
	defer tool.End(front.Kill) // whether it was stopped or not
	h := lockNow(ctx, own, keyName(0))
	for _, c := range append(*front, *next...) {
		ask(ctx, c, request{Do: "wait", Workers: 1})
		time.Sleep(standTime)
	}
	first := (*front)[0]
	tool.Check(first.Cmd.Process.Signal(signal))
	if signal == syscall.SIGKILL {
		<-first.Done
	}
	begin := time.Now()
	tool.Check(h.unlock())
	return time.Unix(0, ask(ctx, (*next)[0], request{Do: "got"}).AtNS[0]).Sub(begin)
}

// deadHolder returns delays in ms.
func deadHolder(ctx context.Context, redis *system.Redis, keys int, validity time.Duration) []float64 {
	ctx, cancel := context.WithTimeout(ctx, lock.DefaultLease+callLimit)
	defer cancel()
	s := setting{Library: ours, Validity: validity}
	own := tool.Must(open(ctx, s, redis.Addr()))
	defer tool.End(own.close)
	holder := startChildren(ctx, 1, spec{Addr: redis.Addr(), Setting: s})
	defer tool.End(holder.Kill)
	ask(ctx, (*holder)[0], request{Do: "hold", Keys: keys, Pause: 20 * time.Millisecond})
	(*holder)[0].Kill()
	delays, expires := make([]float64, keys), make([]int64, keys)
	for i := range expires {
		command := redis.Client.B().Pexpiretime().Key("lock:held:" + keyName(i)).Build()
		expires[i] = tool.Must(redis.Client.Do(ctx, command).AsInt64())
	}
	tool.Together(keys, keys, func(i int) {
		h := lockNow(ctx, own, keyName(i))
		delays[i] = us(time.Since(time.UnixMilli(expires[i]))) / 1000
		tool.Check(h.unlock())
	})
	return delays
}
