package lock

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// beatsPerLimit is how many beats fit into the liveness limit.
const beatsPerLimit = 4

// beatJitter spreads the beats of many processes.
const beatJitter = 20 * time.Millisecond

// loop hears of grants and sends the beats of one group until ctx ends. A beat shows that this process lives, asks
// for grants whose message was lost, and takes locks whose holder has gone: so a lost message costs that much time
// and no more.
func (g *group) loop(ctx context.Context) {
	_ = g.wakes.Start(ctx)
	defer func() { _ = g.wakes.Stop(context.WithoutCancel(ctx)) }()
	var beats sync.WaitGroup
	defer beats.Wait()
	ended := make(chan struct{}, 1)
	timer := time.NewTimer(g.nextBeat())
	defer timer.Stop()
	var stands sync.Once
	underWay, again := false, false
	for {
		beat := false
		select {
		case <-ctx.Done():
			return
		case message := <-g.wakes.Messages():
			g.wake(message)
		case <-g.wakes.Resets():
			stands.Do(func() { close(g.ready) })
			beat = true
		case <-g.poke:
			beat = true
		case <-timer.C:
			beat = true
		case <-ended:
			underWay, beat = false, again
			again = false
			timer.Reset(g.nextBeat())
		}
		switch {
		case beat && underWay:
			again = true
		case beat:
			underWay = true
			beats.Go(func() {
				g.beat(ctx)
				ended <- struct{}{}
			})
		}
	}
}

// nextBeat is how long the next beat has time: until the first lock that is waited for may be free.
func (g *group) nextBeat() time.Duration {
	wait := g.m.opts.Liveness/beatsPerLimit - rand.N(beatJitter)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.soonest > 0 {
		wait = min(wait, max(time.Millisecond, g.soonest-uptime()+time.Millisecond))
	}
	return wait
}

// beat asks for the locks of all waiters again, which changes nothing for those that still wait.
func (g *group) beat(ctx context.Context) {
	g.beating.Lock()
	defer g.beating.Unlock()
	all := g.waiting()
	g.mu.Lock()
	g.soonest = 0
	g.mu.Unlock()
	// Those in front of the queue come first.
	slices.SortFunc(all, func(x, y *acquisition) int { return int(x.number) - int(y.number) })
	for items := range slices.Chunk(all, callItems) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		asked := make([]acquireItem, len(items))
		for i, a := range items {
			asked[i] = acquireItem{a: a, wait: true, place: a.inQueue()}
		}
		answers, err := g.acquire(ctx, asked)
		cancel()
		if err != nil {
			for _, a := range items {
				a.doubt.Store(true)
			}
			g.logDoubt("beat", err)
			return
		}
		for i, a := range items {
			g.answered(a, answers[i])
		}
	}
}

// answered takes over what Redis says of an acquisition that waits.
func (g *group) answered(a *acquisition, got acquired) {
	switch got.code {
	case codeDone:
		a.grant(grant{token: got.token, until: a.confirmed(got.sent), claimed: true})
	case codeBusy:
		a.queued(got.place)
		if got.left > 0 {
			g.mu.Lock()
			if due := uptime() + got.left; g.soonest == 0 || due < g.soonest {
				g.soonest = due
			}
			g.mu.Unlock()
		}
	}
}

// wake takes a message of hand_over.lua: number, token and lock of a grant.
func (g *group) wake(message string) {
	number, token, ok := parseWake(message)
	if !ok {
		if message != "" { // else it asked only whether anyone hears it
			g.m.log.Error("lock.wake_unreadable", zap.String("message", message))
		}
		return
	}
	g.mu.Lock()
	a := g.waiters[number]
	g.mu.Unlock()
	if a == nil {
		g.hurry() // it has left, and its release passes the lock on; or a beat has claimed it
		return
	}
	window := g.window()
	sent, ok := g.sentBefore(token)
	until := sent + window - MinMargin
	if !ok || g.m.opts.Replicas > 0 || until-uptime() < window/4 {
		g.hurry() // too old, or its age is unknown: the beat claims it
		return
	}
	a.grant(grant{token: token, until: until})
}

// window is how long a new owner has to claim a grant.
func (g *group) window() time.Duration { return g.m.opts.Liveness * 7 / 10 }

func parseWake(message string) (number uint64, token int64, ok bool) {
	first, rest, _ := strings.Cut(message, " ")
	second, _, _ := strings.Cut(rest, " ")
	number, err := strconv.ParseUint(first, 10, 64)
	token, err2 := strconv.ParseInt(second, 10, 64)
	return number, token, err == nil && err2 == nil
}
