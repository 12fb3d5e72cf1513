package main

import (
	"context"
	"errors"
	"sync"
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

func runDeath(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) error {
	b.Say("Two processes wait for a fair lock, one after the other. The first is killed (kill -9) or stopped (SIGSTOP), and the holder unlocks at once: the time until the second has the lock, the longest of %d rounds.", l.rounds)
	t := result.Table{First: "The next holder's delay", Columns: []result.Column{{Name: "p50", Unit: result.Milliseconds}, {Name: "p99", Unit: result.Milliseconds}, {Name: "longest", Unit: result.Milliseconds}, {Name: "times"}}}
	add := func(name string, delays []float64) {
		at := func(q float64) float64 { return measure.FourFigures(measure.Quantile(delays, q)) }
		t.Rows = append(t.Rows, result.Row{Name: name, Figures: result.Figures(at(0.5), at(0.99), at(1), float64(len(delays)))})
	}
	liveness := float64(lock.DefaultLiveness.Milliseconds())
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		limit  float64
	}{{"killed", syscall.SIGKILL, 50}, {"stopped", syscall.SIGSTOP, liveness + 50}} {
		var delays []float64
		for range l.rounds {
			d, err := passedOver(ctx, redis, c.signal)
			if err != nil {
				return err
			}
			delays = append(delays, us(d)/1000)
		}
		add("waiter in front "+c.name, delays)
		b.Target("waiter in front "+c.name+": delay of the next", result.Milliseconds, result.AtMost, c.limit, measure.Quantile(delays, 1))
	}
	keys, validity := tool.Sized(b, 100, 20), tool.Sized(b, 0, lock.MinLease)
	b.Say("A process takes %d locks, 20 ms apart, another one waits for all of them, and the first is killed: from the end of each lease in Redis (PEXPIRETIME) until the other one has the lock.", keys)
	delays, err := deadHolder(ctx, redis, keys, validity)
	if err != nil {
		return err
	}
	add("holder killed, after its lease", delays)
	b.Target("holder killed: p99 of the next holder's delay after the lease", result.Milliseconds, result.AtMost, 30, measure.Quantile(delays, 0.99))
	b.Result.Tables = []result.Table{t}
	return nil
}

// passedOver is how long a waiter waits from the release on, where the one in front got that
// signal.
func passedOver(ctx context.Context, redis *system.Redis, signal syscall.Signal) (took time.Duration, err error) {
	s := setting{Library: ours, Fair: true}
	own, err := open(ctx, s, redis.Addr())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	children, err := startChildren(ctx, 2, spec{Addr: redis.Addr(), Setting: s})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end(children[1:])) }()
	front := children[0].Cmd.Process
	defer func() { // whether it was stopped or not
		_ = front.Kill()
		_ = children[0].End()
	}()
	h, err := lockNow(ctx, own, keyName(0))
	if err != nil {
		return 0, err
	}
	for _, c := range children {
		if _, err := ask(ctx, c, request{Do: "wait", Workers: 1}); err != nil {
			return 0, err
		}
		time.Sleep(standTime)
	}
	if err := front.Signal(signal); err != nil {
		return 0, err
	}
	if signal == syscall.SIGKILL {
		<-children[0].Done
	}
	begin := time.Now()
	if err := h.unlock(); err != nil {
		return 0, err
	}
	a, err := ask(ctx, children[1], request{Do: "got"})
	if err != nil {
		return 0, err
	}
	return time.Unix(0, a.AtNS[0]).Sub(begin), nil
}

// deadHolder returns delays in ms.
func deadHolder(ctx context.Context, redis *system.Redis, keys int, validity time.Duration) (delays []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, lock.DefaultLease+callLimit)
	defer cancel()
	s := setting{Library: ours, Validity: validity}
	own, err := open(ctx, s, redis.Addr())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	children, err := startChildren(ctx, 1, spec{Addr: redis.Addr(), Setting: s})
	if err != nil {
		return nil, err
	}
	defer func() { _ = children[0].End() }() // it is killed
	if _, err := ask(ctx, children[0], request{Do: "hold", Keys: keys, Pause: 20 * time.Millisecond}); err != nil {
		return nil, errors.Join(err, children[0].Cmd.Process.Kill())
	}
	err = children[0].Cmd.Process.Kill()
	<-children[0].Done
	if err != nil {
		return nil, err
	}
	delays = make([]float64, keys)
	errs := make([]error, keys)
	var all sync.WaitGroup
	for i := range keys {
		expires, err := redis.Client.Do(ctx, redis.Client.B().Pexpiretime().Key("lock:held:"+keyName(i)).Build()).AsInt64()
		if err != nil {
			return nil, err
		}
		all.Go(func() {
			h, err := lockNow(ctx, own, keyName(i))
			delays[i] = us(time.Since(time.UnixMilli(expires))) / 1000
			if err == nil {
				err = h.unlock()
			}
			errs[i] = err
		})
	}
	all.Wait()
	return delays, errors.Join(errs...)
}
