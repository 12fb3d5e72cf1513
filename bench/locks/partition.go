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

func runPartition(ctx context.Context, b *tool.Bench, redis *system.Redis, l tool.Length) {
	validity := tool.Sized(b, 0, time.Second)
	b.Say("For each library a client holds %d locks, taken %s apart, and another one waits for them. Then a proxy swallows "+
		"all bytes between the first and Redis, and closes nothing. Overlap: from the moment at which the second has the "+
		"lock until the first one's context has ended. %s.", l.Rounds, staggered, versions())
	b.Say("Options are defaults: a lease of %s for ours, %s for the others. redislock and redsync have no context; the one "+
		"that is measured is ended by a loop that extends the lock after each half of its validity and fails. Its calls have "+
		"no bound but the client's own timeouts, as in the examples of the libraries; or they end with the last confirmed "+
		"validity, which a careful user adds.", lock.DefaultLease, peerValidity)
	settings := []setting{
		{Library: ours},
		{Library: rueidisLock, Tracking: "noloop"},
		{Library: redisLock, Bounded: true},
		{Library: redSync, Bounded: true},
	}
	if !b.Short { // go-redis gives up after 10 s
		settings = append(settings, setting{Library: redisLock}, setting{Library: redSync})
	}
	rows := make([][]float64, len(settings))
	tool.Together(len(settings), len(settings), func(i int) {
		s := &settings[i]
		s.Validity = validity
		if s.Library == redisLock || s.Library == redSync {
			s.Retry, s.Extend = 5*time.Millisecond, true
		}
		rows[i] = cutOff(ctx, redis.Addr(), *s, l.Rounds)
	})
	t := result.NewTable("Library", "two live contexts, longest [ms]", "p50 [ms]", "from the cut to the next holder, p50 [ms]")
	for i, s := range settings {
		t.Add(s.String(), rows[i][0], rows[i][1], rows[i][2])
	}
	b.Result.Tables = []result.Table{t}
	b.Target("silent partition: two holders with live contexts", result.Milliseconds, result.Exactly, 0, rows[0][0])
	peer := time.Duration(rows[1][0] * float64(time.Millisecond))
	b.Note("the longest of %d; rueidislock %s", l.Rounds, peer.Round(10*time.Millisecond))
}

// staggered is the time between two locks, so that renewals are met at different moments.
const staggered = 200 * time.Millisecond

// rivals are two holders of one lock: a is cut off, and b waits.
type rivals struct {
	aEnd, bBegin time.Time
	err          error
}

// cutOff has a library's holders cut off, which share a client. It returns the longest and the p50
// of overlaps and the p50 of waits in ms.
func cutOff(ctx context.Context, addr string, s setting, count int) []float64 {
	ctx, cancel := context.WithTimeout(ctx, lock.DefaultLease+2*callLimit)
	defer cancel()
	near := tool.Must(open(ctx, s, addr))
	defer tool.End(near.close)
	proxy := tool.Must(away.Open(addr, 0))
	far, err := open(ctx, s, proxy.Addr())
	if err != nil {
		tool.Check(errors.Join(err, proxy.Close()))
	}
	defer func() { _ = far.close() }()
	defer tool.End(proxy.Close) // first: what is under way would wait for an answer
	all := make([]rivals, count)
	var loops sync.WaitGroup
	defer func() { cancel(); loops.Wait() }()
	for i := range all {
		h := lockNow(ctx, far, s.String()+keyName(i))
		loops.Go(func() { all[i].watch(ctx, h, near, s.String()+keyName(i)) })
		time.Sleep(staggered)
	}
	time.Sleep(time.Second)
	cut := time.Now()
	proxy.Silence()
	loops.Wait()
	overlaps, waits := make([]float64, count), make([]float64, count)
	for i := range all {
		tool.Check(all[i].err)
		overlaps[i] = us(max(0, all[i].aEnd.Sub(all[i].bBegin))) / 1000
		waits[i] = us(all[i].bBegin.Sub(cut)) / 1000
	}
	return []float64{measure.Quantile(overlaps, 1), measure.Quantile(overlaps, 0.5), measure.Quantile(waits, 0.5)}
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
	r.err = tool.Try(func() {
		h := lockNow(ctx, near, key)
		r.bBegin = time.Now()
		both.Wait()
		tool.Check(h.unlock())
	})
	both.Wait()
}
