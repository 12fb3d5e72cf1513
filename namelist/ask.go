package namelist

import (
	"context"
	"sync"
	"time"
)

// askLimit is the largest number of checks that wait for Redis or for their list. Further checks
// are unknown at once.
const askLimit = 1024

// asks holds the checks that wait for Redis. Equal checks share one call.
type asks struct {
	mu      sync.Mutex
	pending map[askKey]*ask // guarded by mu
	waiting int             // guarded by mu; checks that wait for their list
}

type askKey struct {
	build *build
	id    string
}

// ask is one id to ask Redis for.
type ask struct {
	question question
	done     chan struct{} // of all asks of a call; closed once found is set
	found    found
}

// join returns the ask for own's id, which may be another one that is under way; nil if there are
// too many. If it is own, the caller must send it.
func (a *asks) join(b *build, own *ask) *ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := askKey{b, own.question.id}
	if one := a.pending[key]; one != nil {
		return one
	}
	if len(a.pending)+a.waiting >= askLimit {
		return nil
	}
	a.pending[key] = own
	return own
}

// enter begins the wait of a check for its list, unless there are too many; leave ends it.
func (a *asks) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending)+a.waiting >= askLimit {
		return false
	}
	a.waiting++
	return true
}

func (a *asks) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting--
}

// answer asks Redis for ids of one list, and ends their checks by closing done. The deadline is the
// client's own: a caller that goes away must not end the checks of others.
func (c *Client) answer(p *snapshot, l *List, all []*ask, done chan struct{}) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Deadline)
	defer cancel()
	questions := make([]question, len(all))
	for i, one := range all {
		questions[i] = one.question
	}
	var got []found
	if on := c.source.Load(); on != nil {
		begun := time.Now()
		got = (*on).ask(ctx, l.name, p.version, questions)
		l.countCall(time.Since(begun))
	} else {
		got = make([]found, len(all))
		for i := range got {
			got[i].why = ReasonTimeout
		}
	}
	c.metrics.asked.Add(float64(len(all)))
	for i, one := range all {
		if one.found = got[i]; one.found.why == ReasonNone {
			c.cache.put(p.build, one.question.hash, one.question.id, one.found.entry)
		}
	}
	c.asks.mu.Lock()
	for _, one := range all {
		delete(c.asks.pending, askKey{p.build, one.question.id})
	}
	c.asks.mu.Unlock()
	close(done)
}

// undecided returns an answer that still has neither verdict nor reason.
func (p *snapshot) undecided() Answer {
	return Answer{Version: p.version.Number, Revision: p.revision, AsOf: p.asOf, Stale: p.stale}
}

// take waits for an ask, and fills in the answer.
func (l *List) take(ctx context.Context, p *snapshot, a *Answer, one *ask) {
	select {
	case <-one.done:
	case <-ctx.Done():
		a.Reason = ReasonTimeout
		return
	}
	if a.Reason = one.found.why; a.Reason == ReasonNone {
		p.decide(a, SourceRedis, one.found.entry)
		l.countPassed(p, one)
	}
}

// slept reports whether a snapshot may show a version that was replaced long ago, as in a process
// that was frozen.
func (p *snapshot) slept() bool { return time.Since(p.asOf) > 2*lookEvery }
