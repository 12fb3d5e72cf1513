package registry

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/script"
)

// tagLooks schedules the looks at the services of one tag. The tags are apart, so that a slow
// server delays only its own services. For each tag, at most one regular look is under way, and one
// out of turn.
type tagLooks struct {
	next, nextHistory time.Duration
	looking           bool
	failures          int

	soon        map[*followed]struct{}
	soonHistory bool
	soonAt      time.Duration
	soonBusy    bool
}

// tagOf returns the looks of a service. Call it only after Redis was reached.
func (f *follower) tagOf(s *followed) *tagLooks {
	return &f.tags[script.CellOf(s.service, len(f.tags))]
}

func (f *follower) lookSoon(s *followed, history bool) {
	tag := f.tagOf(s)
	tag.soon[s] = struct{}{}
	tag.soonHistory = tag.soonHistory || history
}

// lookAtAll schedules a look at every service.
func (f *follower) lookAtAll() {
	for _, s := range f.services {
		f.lookSoon(s, false)
	}
}

// due returns when the next look begins, apart from looks that wait for another one to end.
func (l *tagLooks) due() time.Duration {
	at := time.Duration(math.MaxInt64)
	if !l.looking {
		at = l.next
	}
	if len(l.soon) > 0 && !l.soonBusy {
		at = min(at, l.soonAt)
	}
	return at
}

// turnLooks begins the looks that are due.
func (f *follower) turnLooks(now time.Duration) {
	if len(f.again) > 0 && now >= f.againAt {
		for s := range f.again {
			f.lookSoon(s, true)
		}
		clear(f.again)
	}
	var regular map[*tagLooks][]*followed // all services of the tags that are due
	for i := range f.tags {
		tag := &f.tags[i]
		if now >= tag.next && !tag.looking {
			if regular == nil {
				regular = make(map[*tagLooks][]*followed)
			}
			regular[tag] = nil
		}
		if len(tag.soon) > 0 && !tag.soonBusy && now >= tag.soonAt {
			some := slices.Collect(maps.Keys(tag.soon))
			clear(tag.soon)
			tag.soonBusy = true
			f.lookAt(tag, some, tag.soonHistory, func() { tag.soonBusy, tag.soonAt = false, f.now()+soonEvery })
			tag.soonHistory = false
		}
	}
	if regular == nil {
		return
	}
	for _, s := range f.services {
		if all, due := regular[f.tagOf(s)]; due {
			regular[f.tagOf(s)] = append(all, s)
		}
	}
	// Tags that are due together stay together, so that one pass over the services serves them all.
	next := now + f.look*3/4 + rand.N(f.look/4+1)
	for tag, all := range regular {
		tag.next = next
		if len(all) == 0 {
			tag.failures = 0 // it may be well again
			continue
		}
		history := now >= tag.nextHistory
		if history {
			tag.nextHistory = now + historyEvery
		}
		tag.looking = true
		f.lookAt(tag, all, history, func() { tag.looking = false })
	}
}

// lookAt looks at services of a tag, call by call, beside the looks of other tags. Then the loop
// calls end.
func (f *follower) lookAt(tag *tagLooks, services []*followed, history bool, end func()) {
	type part struct {
		services []*followed
		items    []lookItem
		asked    []asked
	}
	var parts []part
	for some := range slices.Chunk(services, lookServices) {
		p := part{services: some}
		for _, s := range some {
			p.items = append(p.items, lookItem{service: s.service, timeout: f.c.opts.Timeout})
			a := s.follower.view.ask()
			history = history || a.history
			p.asked = append(p.asked, a)
		}
		parts = append(parts, p)
	}
	f.c.loops.Go(func() {
		for _, p := range parts {
			ctx, cancel := context.WithTimeout(f.c.ctx, min(callTimeout, f.look))
			found, err := f.conn.poll(ctx, history, p.items)
			cancel()
			f.post(func(now time.Duration) { f.lookedAt(tag, p.services, p.asked, found, err, now) })
		}
		f.post(func(time.Duration) { end() })
	})
}

func (f *follower) lookedAt(
	tag *tagLooks, services []*followed, asked []asked, found []looked, err error, now time.Duration,
) {
	if err != nil {
		if f.c.ctx.Err() == nil {
			f.c.metrics.failed.Inc()
			f.outage.Failed(err)
		}
		for _, s := range services {
			s.follower.view.lookFailed()
		}
		tag.next = min(tag.next, now+follow.Backoff(firstLookRetry, f.look, tag.failures))
		tag.failures++
		return
	}
	tag.failures = 0
	// While another tag fails, the outage goes on: one server of a cluster may be down.
	if !slices.ContainsFunc(f.tags, func(t tagLooks) bool { return t.failures > 0 }) {
		f.outage.Over()
	}
	for i, s := range services {
		if !s.follower.removed {
			s.follower.view.looked(asked[i], &found[i], now)
			f.touched(s, now)
		}
	}
}
