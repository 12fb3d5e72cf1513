package lock

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// beatsPerLimit is the number of beats within the liveness limit.
const beatsPerLimit = 4

// beatJitter spreads the beats of many processes.
const beatJitter = 20 * time.Millisecond

// loop subscribes to grants and sends the beats of one group until ctx ends. A beat shows that this
// process lives, asks for grants whose message was lost, and takes locks whose holder has gone. So
// a lost message delays a waiter by one beat at most.
func (g *group) loop(ctx context.Context) {
	_ = g.wakes.Start(ctx)
	defer func() { _ = g.wakes.Stop(context.WithoutCancel(ctx)) }()
	var beats sync.WaitGroup
	defer beats.Wait()
	ended := make(chan struct{}, 1)
	begun := uptime()
	timer := time.NewTimer(g.untilBeat(begun))
	defer timer.Stop()
	var stands sync.Once
	underWay, again := false, false
	for {
		beat := false
		select {
		case <-ctx.Done():
			return
		case <-g.wakes.Resets():
			stands.Do(func() { close(g.ready) })
			g.connected("wakes", g.subscribed())
			beat = true
		case <-g.poke:
			beat = true
		case <-timer.C:
			beat = true
		case <-g.sooner:
			timer.Reset(g.untilBeat(begun))
		case <-ended:
			underWay, beat = false, again
			again = false
			timer.Reset(g.untilBeat(begun))
		}
		switch {
		case beat && underWay:
			again = true
		case beat:
			underWay, begun = true, uptime()
			beats.Go(func() {
				g.beat(ctx)
				ended <- struct{}{}
			})
		}
	}
}

// untilBeat returns the time until the next beat, if the last one began at begun. It is shorter if
// a lock that somebody here waits for may be free sooner.
func (g *group) untilBeat(begun time.Duration) time.Duration {
	due := begun + g.m.opts.Liveness/beatsPerLimit - rand.N(beatJitter)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.soonest > 0 {
		due = min(due, g.soonest+time.Millisecond)
	}
	return max(due-uptime(), time.Millisecond)
}

// beat asks again for the locks of all waiters, which changes nothing for those that still wait.
func (g *group) beat(ctx context.Context) {
	all := g.waiting()
	g.mu.Lock()
	g.soonest = 0
	g.mu.Unlock()
	// The waiters in front of the queue come first.
	slices.SortFunc(all, func(x, y *acquisition) int { return cmp.Compare(x.number, y.number) })
	for items := range slices.Chunk(all, callItems) {
		if err := g.beatItems(ctx, items); err != nil {
			g.logDoubt("lock.beat_failed", err)
			return
		}
	}
}

// beatItems makes one call of a beat.
func (g *group) beatItems(ctx context.Context, items []*acquisition) error {
	g.beating <- struct{}{}
	defer func() { <-g.beating }()
	g.mu.Lock()
	items = slices.DeleteFunc(items, func(a *acquisition) bool { return g.waiters[a.number] == nil })
	g.mu.Unlock()
	if len(items) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.runner.ConfirmTimeout())
	defer cancel()
	asked := make([]acquireItem, len(items))
	for i, a := range items {
		asked[i] = acquireItem{a: a, wait: true, place: a.inQueue()}
	}
	answers, err := g.acquire(ctx, asked)
	for i, a := range items {
		switch {
		case err == nil:
			g.answered(a, answers[i])
		case final(err):
			a.promote()
		case inDoubt(err):
			a.doubt.Store(true)
		}
	}
	return err
}

// answered handles Redis' answer about an acquisition that waits.
func (g *group) answered(a *acquisition, got acquired) {
	switch got.code {
	case codeDone:
		a.grant(grant{token: got.token, until: a.confirmed(got.sent), claimed: true})
	case codeBusy:
		a.queued(got.place)
		if got.left >= 0 {
			g.dueIn(got.left)
		}
	default:
		a.promote() // it asks Redis itself, and gets the same answer
	}
}

// dueIn makes a beat look at a lock that ends within left.
func (g *group) dueIn(left time.Duration) {
	g.mu.Lock()
	due := uptime() + left
	sooner := g.soonest == 0 || due < g.soonest
	if sooner {
		g.soonest = due
	}
	g.mu.Unlock()
	if sooner {
		select {
		case g.sooner <- struct{}{}:
		default:
		}
	}
}

// wake handles a message of hand_over.lua: number, token and lock of a grant. The connection cannot
// receive more until wake returns, so wake only signals.
func (g *group) wake(message string) {
	number, token, ok := parseWake(message)
	if !ok {
		if message != "" { // an empty message only asks whether anyone is subscribed
			g.m.log.Error("lock.wake_unreadable", zap.String("message", message))
		}
		return
	}
	g.mu.Lock()
	a := g.waiters[number]
	g.mu.Unlock()
	if a == nil {
		return // it has left and its release passes the lock on, or a beat has claimed it
	}
	sent, ok := g.sentBefore(token)
	until := g.provisional(a, sent)
	if !ok || g.m.opts.Replicas > 0 || g.late(until) {
		g.hurry() // too old, or of unknown age: the beat claims it
		return
	}
	a.grant(grant{token: token, until: until})
}

// window returns how long a new owner has to claim a grant.
func (g *group) window() time.Duration { return g.m.opts.Liveness * 7 / 10 }

// provisional returns the time at which a grant ends unless it is claimed. The grant was made after
// a call sent at sent. A claim begins a lease, which may be shorter.
func (g *group) provisional(a *acquisition, sent time.Duration) time.Duration {
	return sent + min(g.window(), a.cfg.Lease) - MinMargin
}

// late reports whether too little time is left to claim a grant that ends at until.
func (g *group) late(until time.Duration) bool { return until-uptime() < g.window()/4 }

func parseWake(message string) (number uint64, token int64, ok bool) {
	first, rest, _ := strings.Cut(message, " ")
	second, _, _ := strings.Cut(rest, " ")
	number, err := strconv.ParseUint(first, 10, 64)
	token, err2 := strconv.ParseInt(second, 10, 64)
	return number, token, err == nil && err2 == nil
}
