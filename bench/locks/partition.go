package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/away"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/lock"
)

// rivals are two holders of one lock: a is cut off, and b waits.
type rivals struct {
	aEnd, bBegin time.Time
	err          error
}

func runPartition(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) error {
	validity := tool.Sized(b, 0, time.Second)
	b.Say("For each library a client holds %d locks, taken %s apart, and another one waits for them. Then a proxy swallows all bytes between the first and Redis, and closes nothing. Overlap: from the moment at which the second has the lock until the first one's context has ended. %s.", l.rounds, staggered, versions())
	b.Say("Options are defaults: a lease of %s for ours, %s for the others. redislock and redsync have no context; the one that is measured is ended by a loop that extends the lock after each half of its validity and fails. Its calls have no bound but the client's own timeouts, as in the examples of the libraries; or they end with the last confirmed validity, which a careful user adds.", lock.DefaultLease, peerValidity)
	settings := []setting{
		{Library: ours, Validity: validity},
		{Library: rueidisLock, Tracking: "noloop", Validity: validity},
		{Library: redisLock, Retry: 5 * time.Millisecond, Validity: validity, Extend: true, Bounded: true},
		{Library: redSync, Retry: 5 * time.Millisecond, Validity: validity, Extend: true, Bounded: true},
	}
	if !b.Short { // go-redis gives up after 10 s
		settings = append(settings,
			setting{Library: redisLock, Retry: 5 * time.Millisecond, Validity: validity, Extend: true},
			setting{Library: redSync, Retry: 5 * time.Millisecond, Validity: validity, Extend: true})
	}
	t := result.Table{First: "Library", Columns: []result.Column{
		{Name: "two live contexts, longest", Unit: result.Milliseconds},
		{Name: "p50", Unit: result.Milliseconds},
		{Name: "from the cut to the next holder, p50", Unit: result.Milliseconds},
	}}
	rows, errs := make([]result.Row, len(settings)), make([]error, len(settings))
	var all sync.WaitGroup
	for i, s := range settings {
		all.Go(func() { rows[i], errs[i] = cutOff(ctx, redis.Addr(), s, l.rounds) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	t.Rows = rows
	b.Result.Tables = []result.Table{t}
	b.Target("silent partition: two holders with live contexts", result.Milliseconds, result.Exactly, 0, rows[0].Figures[0][0])
	note(b, "the longest of %d; rueidislock %s", l.rounds, time.Duration(rows[1].Figures[0][0]*float64(time.Millisecond)).Round(10*time.Millisecond))
	return nil
}

// staggered is the time between two locks, so that renewals are met at different moments.
const staggered = 200 * time.Millisecond

// cutOff has a library's holders cut off. All of its locks share a client.
func cutOff(ctx context.Context, addr string, s setting, count int) (row result.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, lock.DefaultLease+2*callLimit)
	defer cancel()
	near, err := open(ctx, s, addr)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, near.close()) }()
	proxy, err := away.Open(addr, 0)
	if err != nil {
		return row, err
	}
	far, err := open(ctx, s, proxy.Addr())
	if err != nil {
		return row, errors.Join(err, proxy.Close())
	}
	defer func() {
		err = errors.Join(err, proxy.Close()) // what is under way would wait for an answer
		_ = far.close()
	}()
	all := make([]rivals, count)
	var loops sync.WaitGroup
	defer func() { cancel(); loops.Wait() }()
	for i := range all {
		h, err := lockNow(ctx, far, s.String()+keyName(i))
		if err != nil {
			return row, err
		}
		loops.Go(func() { all[i].watch(ctx, h, near, s.String()+keyName(i)) })
		time.Sleep(staggered)
	}
	time.Sleep(time.Second)
	cut := time.Now()
	proxy.Silence()
	loops.Wait()
	overlaps, waits := make([]float64, count), make([]float64, count)
	for i := range all {
		err = errors.Join(err, all[i].err)
		overlaps[i] = us(max(0, all[i].aEnd.Sub(all[i].bBegin))) / 1000
		waits[i] = us(all[i].bBegin.Sub(cut)) / 1000
	}
	at := func(values []float64, q float64) float64 { return measure.FourFigures(measure.Quantile(values, q)) }
	return result.Row{Name: s.String(), Figures: result.Figures(at(overlaps, 1), at(overlaps, 0.5), at(waits, 0.5))}, err
}

// watch looks at a's context each millisecond, and has b wait for the lock. It ends when both are
// over.
func (r *rivals) watch(ctx context.Context, a hold, near locker, key string) {
	var both sync.WaitGroup
	both.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for a.ctx.Err() == nil {
			<-tick.C
		}
		r.aEnd = time.Now()
	})
	h, err := lockNow(ctx, near, key)
	r.bBegin = time.Now()
	both.Wait()
	if err == nil {
		err = h.unlock()
	}
	r.err = err
}
