package namelist

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/namelist/count"
)

// batch is the number of ids for which CheckAll asks Redis in one call; two calls are under way at
// once.
const batch = 256

// List answers for one list. It is safe for concurrent use, and valid until its client closes.
type List struct {
	name     string
	client   *Client
	snapshot atomic.Pointer[snapshot]
	// failure is the error of the last call for the list alone, or nil.
	failure atomic.Pointer[error]
	counts  *count.Set // of count.Cells

	follower followed
}

// Status is the state of a list in this client.
type Status struct {
	List string
	// Reason says why the list does not answer.
	Reason Reason
	// State is the list's state on the control server; empty while unknown.
	State string
	// Version is the version that answers, with the list's edits up to Revision.
	Version, Revision int64
	// Next is the version that a switch is being prepared for, 0 without one. Prepared is true if
	// all of it that fits is loaded.
	Next     int64
	Prepared bool
	// Blocks counts the blocks of Version's filter, Loaded those that are in memory.
	Blocks, Loaded int
	// Edits counts the ids that have an edit in memory. Bytes is the memory that the list needs in
	// all.
	Edits int
	Bytes int64
	// AsOf and Stale are as in an Answer.
	AsOf  time.Time
	Stale bool
}

// Name returns the list's name.
func (l *List) Name() string { return l.name }

// Check answers for an id. It asks Redis only for what memory cannot decide. The first check waits
// until the list is there, for at most Config.Deadline, and not beyond ctx. Pass the id in any
// form; Check brings it into the list's form, such as lower case.
func (l *List) Check(ctx context.Context, id string) (a Answer) {
	p := l.snapshot.Load()
	if q, open := p.lookup(&a, l.client.cache, id); open {
		a = l.remote(ctx, p, id, q)
	}
	l.count(&a)
	return a
}

// Peek answers like Check, but without Redis: what memory cannot decide is unknown, as not loaded.
func (l *List) Peek(id string) (a Answer) {
	l.peek(&a, id)
	l.count(&a)
	return a
}

// peek works like Peek, but does not count.
func (l *List) peek(a *Answer, id string) {
	if _, open := l.snapshot.Load().lookup(a, l.client.cache, id); open {
		a.Reason = ReasonNotLoaded
	}
}

// remote asks Redis, once the list is there. A process that was frozen may find that its version
// has gone. It then reads the head again, and answers from the new version.
func (l *List) remote(ctx context.Context, p *snapshot, id string, q question) Answer {
	ctx, cancel := context.WithTimeout(ctx, l.client.cfg.Deadline)
	defer cancel()
	var a Answer
	open := true
	if p.why != ReasonNone {
		if p, open = l.first(ctx, p); open {
			q, open = p.lookup(&a, l.client.cache, id)
		} else {
			a.Reason = ReasonOverloaded
		}
	}
	if open && p.why == ReasonNone {
		a = l.ask(ctx, p, q)
	}
	if (a.Reason == ReasonSegment || a.Reason == ReasonMoved) && p.slept() {
		now := p
		for l.client.lookSoon(); now.slept() && ctx.Err() == nil; now = l.snapshot.Load() {
			select {
			case <-now.replaced:
			case <-ctx.Done():
			}
		}
		if now.build != p.build {
			var again Answer
			q, open := now.lookup(&again, l.client.cache, id)
			if a = again; open {
				a = l.ask(ctx, now, q)
			}
		}
	}
	if a.Verdict == Unknown {
		l.client.metrics.unknown.WithLabelValues(a.Reason.String()).Inc()
	}
	return a
}

// first waits for the first snapshot of a list. ok is false if too many checks wait.
func (l *List) first(ctx context.Context, p *snapshot) (now *snapshot, ok bool) {
	if !l.client.asks.enter() {
		return p, false
	}
	defer l.client.asks.leave()
	for p.why == ReasonNotLoaded {
		select {
		case <-p.replaced:
			p = l.snapshot.Load()
		case <-ctx.Done():
			return p, true
		case <-l.client.ctx.Done():
			return p, true
		}
	}
	return p, true
}

func (l *List) ask(ctx context.Context, p *snapshot, q question) Answer {
	a := p.undecided()
	own := &ask{question: q, done: make(chan struct{})}
	one := l.client.asks.join(p.build, own)
	switch {
	case one == nil:
		a.Reason = ReasonOverloaded
	case one == own && !l.client.spawn(func() { l.client.answer(p, l, []*ask{own}, own.done) }):
		a.Reason = ReasonNotLoaded
	default:
		l.take(ctx, p, &a, one)
	}
	return a
}

// CheckAll answers for many ids, in their order, from one version and revision. It asks Redis for
// 256 ids in a call. Config.Deadline bounds each call, and the wait for a list that is not there
// yet.
func (l *List) CheckAll(ctx context.Context, ids []string) []Answer {
	answers := l.checkAll(ctx, ids)
	for i := range answers {
		l.count(&answers[i])
	}
	return answers
}

// checkAll works like CheckAll, but does not count.
func (l *List) checkAll(ctx context.Context, ids []string) []Answer {
	answers := make([]Answer, len(ids))
	p, ok := l.loaded(ctx)
	if !ok {
		for i := range answers {
			answers[i].Reason = ReasonOverloaded
		}
		return answers
	}
	type waiting struct {
		at  int
		ask *ask
	}
	var before, now []waiting
	var mine []*ask
	var own []ask // memory for the asks of this call
	done := make(chan struct{})
	take := func(all []waiting) {
		for _, w := range all {
			l.take(ctx, p, &answers[w.at], w.ask)
		}
	}
	send := func() {
		if len(mine) > 0 {
			all, ended := mine, done
			if !l.client.spawn(func() { l.client.answer(p, l, all, ended) }) {
				ctx = l.client.ctx // it has ended
			}
			done = make(chan struct{})
		}
		take(before)
		before, now, mine, own = now, nil, nil, nil
	}
	for i, id := range ids {
		q, open := p.lookup(&answers[i], l.client.cache, id)
		if !open || p.why != ReasonNone {
			continue
		}
		if len(own) == cap(own) { // pointers to earlier asks stay valid
			own = make([]ask, 0, min(batch, len(ids)-i))
		}
		own = append(own, ask{question: q, done: done})
		last := &own[len(own)-1]
		one := l.client.asks.join(p.build, last)
		if one == nil {
			answers[i].Reason = ReasonOverloaded
			continue
		}
		now = append(now, waiting{i, one})
		if one == last {
			mine = append(mine, one)
		}
		if len(now) == batch {
			send()
		}
	}
	send()
	take(before)
	return answers
}

// loaded waits, within Config.Deadline, for a list that is not there yet. It returns false if too
// many wait for it.
func (l *List) loaded(ctx context.Context) (*snapshot, bool) {
	p := l.snapshot.Load()
	if p.why != ReasonNotLoaded {
		return p, true
	}
	ctx, cancel := context.WithTimeout(ctx, l.client.cfg.Deadline)
	defer cancel()
	return l.first(ctx, p)
}

// WaitReady waits until the list answers, and all of its filter that fits is in memory. Without it,
// the first checks wait for the list, and ask Redis for what memory does not have yet, within
// Config.Deadline. Errors: the end of ctx, with the reason why the list is not ready.
func (l *List) WaitReady(ctx context.Context) error {
	for {
		p := l.snapshot.Load()
		if p.why == ReasonNone && p.ready {
			return nil
		}
		select {
		case <-p.replaced:
		case <-l.client.ctx.Done():
			return fmt.Errorf("list %s: %w", l.name, ErrClosed)
		case <-ctx.Done():
			why := p.why.String()
			if p.why == ReasonNone {
				why = fmt.Sprintf("%d of %d blocks of its filter are loaded", p.status.Loaded, p.status.Blocks)
			}
			err := l.client.failure()
			if own := l.failure.Load(); own != nil { // other lists may have rights that it lacks
				err = *own
			}
			if err != nil {
				return fmt.Errorf("list %s is not ready, %s: %w (%w)", l.name, why, context.Cause(ctx), err)
			}
			return fmt.Errorf("list %s is not ready, %s: %w", l.name, why, context.Cause(ctx))
		}
	}
}

// Status returns the state of the list in this client.
func (l *List) Status() Status { return l.snapshot.Load().status }

// OnChange calls call with the current Status, and with each new one; some in between may be left
// out. If only AsOf and Bytes differ, that is no change. The calls come one after the other from a
// goroutine of their own. call must not call Close. stop ends the calls, and does not wait for one
// under way.
func (l *List) OnChange(call func(Status)) (stop func()) {
	ctx, stop := context.WithCancel(l.client.ctx)
	l.client.spawn(func() {
		for last := (Status{}); ctx.Err() == nil; {
			p := l.snapshot.Load()
			if s := p.status; !s.same(last) {
				last = s
				call(s)
			}
			select {
			case <-p.replaced:
			case <-ctx.Done():
			}
		}
	})
	return stop
}

// same reports whether two statuses are equal to a listener.
func (s Status) same(other Status) bool {
	s.AsOf, s.Bytes = other.AsOf, other.Bytes
	return s == other
}
