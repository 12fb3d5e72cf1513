package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// queueTime is how long a waiter is given to stand in the queue.
const queueTime = 10 * time.Millisecond

// libraries take turns within a round; ours comes first.
var libraries = append([]setting{{Library: ours}}, best()...)

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// timed is a step of a turn; rounds has its p50 of each round.
type timed struct {
	run         func(ctx context.Context)
	now, rounds []float64
}

func (t *timed) add(d time.Duration) { t.now = append(t.now, us(d)) }

func (t *timed) endRound() {
	t.rounds, t.now = append(t.rounds, measure.Median(t.now)), nil
}

func (t *timed) p50() float64 { return measure.Median(t.rounds) }

func runAlone(ctx context.Context, b *tool.Bench, redis *system.Redis, l tool.Length) {
	b.Say("One goroutine runs a bare EVALSHA of `return 1`, by a client with the options of ours, the same by one that "+
		"pipelines as ours does once it was used by two goroutines at once, and then lock and unlock of each library, "+
		"for %s; p50 of each of %d rounds, and the median of these. %s.", l.Window, l.Rounds, versions())
	lockers, closeAll := openAll(ctx, redis.Addr(), libraries)
	defer tool.End(closeAll)
	script := rueidis.NewLuaScript("return 1")
	bare := func() (*timed, func()) {
		client := tool.Must(redisclient.Commands(redisclient.Config{URL: redis.URL()}))
		return &timed{run: func(ctx context.Context) {
			tool.Check(script.Exec(ctx, client, []string{"bare"}, nil).Error())
		}}, client.Close
	}
	plain, closePlain := bare()
	defer closePlain()
	// A client of rueidis that several goroutines have used at once pipelines from then on, as ours
	// does.
	pipelined, closePipelined := bare()
	defer closePipelined()
	tool.Together(8, 800, func(int) { pipelined.run(ctx) })
	steps := []*timed{plain, pipelined}
	for i, l := range lockers {
		m := tool.Must(l.mutex("alone:" + libraries[i].Library))
		var h hold
		steps = append(steps,
			&timed{run: func(ctx context.Context) { h = tool.Must(m(ctx)) }},
			&timed{run: func(context.Context) { tool.Check(h.unlock()) }})
	}
	for range l.Rounds {
		round, cancel := context.WithTimeout(ctx, l.Window+callLimit)
		defer cancel()
		for begin := time.Now(); time.Since(begin) < l.Window; {
			for _, s := range steps {
				call := time.Now()
				s.run(round)
				s.add(time.Since(call))
			}
		}
		for _, s := range steps {
			s.endRound()
		}
	}
	t := result.NewTable("p50 of", "lock [us]", "unlock [us]")
	for i, s := range libraries {
		t.Add(s.String(), steps[2+2*i].p50(), steps[3+2*i].p50())
	}
	t.Add("a bare EVALSHA", plain.p50())
	t.Add("a bare EVALSHA, pipelined", pipelined.p50())
	b.Result.Tables = []result.Table{t}
	for i, name := range []string{"lock", "unlock"} {
		own := steps[2+i].p50()
		b.Target("one at a time: p50 of "+name+" / a bare EVALSHA", result.Times, result.AtMost, 1.2, own/plain.p50())
		b.Note("%.2fx one of a client that pipelines", own/pipelined.p50())
	}
}

func runNext(ctx context.Context, b *tool.Bench, redis *system.Redis, l tool.Length) {
	turns := max(int(l.Window/(20*time.Millisecond)), 3)
	b.Say("This process holds the lock and another one has waited for it for %s to twice of that: from the call of "+
		"unlock to the return of lock, beside the same from a PUBLISH to the message in a process that only subscribes. "+
		"%d turns in each of %d rounds, p50 of each round, and the median of these. %s.", queueTime, turns, l.Rounds, versions())
	lockers, closeAll := openAll(ctx, redis.Addr(), libraries)
	defer tool.End(closeAll)
	kinds := append(slices.Clone(libraries), setting{})
	waits := make([]timed, len(kinds))
	var children tool.Children
	defer tool.End(children.End)
	for _, s := range kinds {
		children = append(children, *startChildren(ctx, 1, spec{Addr: redis.Addr(), Setting: s})...)
	}
	publish := func() error {
		ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
		defer cancel()
		return redis.Client.Do(ctx, redis.Client.B().Publish().Channel(bareChannel).Message("m").Build()).Error()
	}
	for range l.Rounds {
		for range turns {
			for i, c := range children {
				leave := publish
				if i < len(lockers) {
					leave = lockNow(ctx, lockers[i], keyName(0)).unlock
					ask(ctx, c, request{Do: "wait", Workers: 1})
				}
				time.Sleep(queueTime + rand.N(queueTime)) // so that those who poll are met at any point
				begin := time.Now()
				tool.Check(leave())
				waits[i].add(time.Unix(0, ask(ctx, c, request{Do: "got"}).AtNS[0]).Sub(begin))
			}
		}
		for i := range waits {
			waits[i].endRound()
		}
	}
	t := result.NewTable("From unlock to the next holder", "p50 [us]", "least and most of the rounds [us]")
	for i, s := range kinds {
		name := s.String()
		if name == "" {
			name = "bare PUBLISH to message"
		}
		t.Add(name, waits[i].p50(), extremes(waits[i].rounds, measure.FourFigures))
	}
	b.Result.Tables = []result.Table{t}
	b.Target("unlock to the next holder in another process: p50 / bare publish to receive", result.Times, result.AtMost, 1.5,
		waits[0].p50()/waits[len(lockers)].p50())
}

// extremes are the least and the most of the rounds.
func extremes(rounds []float64, round func(float64) float64) result.Figure {
	return result.Figure{round(measure.Quantile(rounds, 0)), round(measure.Quantile(rounds, 1))}
}
