package namelist

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// batch is how many ids CheckAll asks Redis for in one call; two are under way at once.
const batch = 256

// List answers for one list. It is safe for concurrent use, and is valid until its client closes.
type List struct {
	name    string
	client  *Client
	picture atomic.Pointer[picture]
	// failure is why the last call for the list alone failed; nil if it did not.
	failure atomic.Pointer[error]

	follower followed
}

// Status is how a list stands.
type Status struct {
	List string
	// Reason is why the list does not answer.
	Reason Reason
	// State is the list's on the control server; empty while unknown.
	State string
	// Version answers, with the list's edits up to Revision.
	Version, Revision int64
	// Next is the version that a switch is being prepared for, 0 without one; Prepared says that
	// all of it that fits is loaded.
	Next     int64
	Prepared bool
	// Blocks is how many the filter of Version has, and Loaded how many are in memory.
	Blocks, Loaded int
	// Edits is how many ids have an edit in memory. Bytes is what the list needs in all.
	Edits int
	Bytes int64
	// AsOf and Stale are as in an Answer.
	AsOf  time.Time
	Stale bool
}

// Name is the list's.
func (l *List) Name() string { return l.name }

// Check answers for an id. It asks Redis only for what memory cannot decide, and the first check
// waits until the list is there: for at most Config.Deadline, and not beyond ctx. The id is as the
// caller has it; form lower makes it small.
func (l *List) Check(ctx context.Context, id string) (a Answer) {
	p := l.picture.Load()
	if q, open := p.look(&a, l.client.cache, id); open {
		return l.remote(ctx, p, id, q)
	}
	return a
}

// Peek is Check without Redis: what memory cannot decide is unknown, as not loaded.
func (l *List) Peek(id string) (a Answer) {
	if _, open := l.picture.Load().look(&a, l.client.cache, id); open {
		a.Reason = ReasonNotLoaded
	}
	return a
}

// remote asks Redis, once the list is there. A process that was frozen may find that its version
// has gone: it reads the head again, and answers from the new version.
func (l *List) remote(ctx context.Context, p *picture, id string, q question) Answer {
	ctx, cancel := context.WithTimeout(ctx, l.client.cfg.Deadline)
	defer cancel()
	var a Answer
	open := true
	if p.why != ReasonNone {
		if p, open = l.first(ctx, p); open {
			q, open = p.look(&a, l.client.cache, id)
		} else {
			a.Reason = ReasonOverloaded
		}
	}
	if open && p.why == ReasonNone {
		a = l.ask(ctx, p, q)
	}
	if (a.Reason == ReasonSegment || a.Reason == ReasonMoved) && p.slept() {
		now := p
		for l.client.lookSoon(); now.slept() && ctx.Err() == nil; now = l.picture.Load() {
			select {
			case <-now.replaced:
			case <-ctx.Done():
			}
		}
		if now.build != p.build {
			var again Answer
			q, open := now.look(&again, l.client.cache, id)
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

// first waits for the first picture of a list. ok is false when too many checks wait.
func (l *List) first(ctx context.Context, p *picture) (now *picture, ok bool) {
	if !l.client.asks.enter() {
		return p, false
	}
	defer l.client.asks.leave()
	for p.why == ReasonNotLoaded {
		select {
		case <-p.replaced:
			p = l.picture.Load()
		case <-ctx.Done():
			return p, true
		case <-l.client.ctx.Done():
			return p, true
		}
	}
	return p, true
}

func (l *List) ask(ctx context.Context, p *picture, q question) Answer {
	a := p.undecided()
	own := &ask{question: q, done: make(chan struct{})}
	one := l.client.asks.join(p.build, own)
	switch {
	case one == nil:
		a.Reason = ReasonOverloaded
	case one == own && !l.client.spawn(func() { l.client.answer(p, l.name, []*ask{own}, own.done) }):
		a.Reason = ReasonNotLoaded
	default:
		p.take(ctx, &a, one)
	}
	return a
}

// CheckAll answers for many ids, in their order, from one version and revision. It asks Redis for
// 256 ids in a call. Each call has Config.Deadline, and so has the wait for a list that is not
// there yet.
func (l *List) CheckAll(ctx context.Context, ids []string) []Answer {
	p := l.picture.Load()
	answers := make([]Answer, len(ids))
	if p.why == ReasonNotLoaded {
		wait, cancel := context.WithTimeout(ctx, l.client.cfg.Deadline)
		defer cancel()
		var ok bool
		if p, ok = l.first(wait, p); !ok {
			for i := range answers {
				answers[i].Reason = ReasonOverloaded
			}
			return answers
		}
	}
	type waiting struct {
		at  int
		ask *ask
	}
	var before, now []waiting
	var mine []*ask
	var own []ask // where asks of this call come from
	done := make(chan struct{})
	take := func(all []waiting) {
		for _, w := range all {
			p.take(ctx, &answers[w.at], w.ask)
		}
	}
	send := func() {
		if len(mine) > 0 {
			all, ended := mine, done
			if !l.client.spawn(func() { l.client.answer(p, l.name, all, ended) }) {
				ctx = l.client.ctx // which has ended
			}
			done = make(chan struct{})
		}
		take(before)
		before, now, mine, own = now, nil, nil, nil
	}
	for i, id := range ids {
		q, open := p.look(&answers[i], l.client.cache, id)
		if !open || p.why != ReasonNone {
			continue
		}
		if len(own) == cap(own) { // pointers to those before stay
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

// WaitReady waits until the list answers, and all of its filter that fits is in memory. Without it
// the first checks wait for the list, and ask Redis for what memory does not have yet, within
// Config.Deadline. Errors: the end of ctx, with why the list is not ready.
func (l *List) WaitReady(ctx context.Context) error {
	for {
		p := l.picture.Load()
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
			if own := l.failure.Load(); own != nil { // others may have rights that it lacks
				err = *own
			}
			if err != nil {
				return fmt.Errorf("list %s is not ready, %s: %w (%w)", l.name, why, context.Cause(ctx), err)
			}
			return fmt.Errorf("list %s is not ready, %s: %w", l.name, why, context.Cause(ctx))
		}
	}
}

// Status is how the list stands.
func (l *List) Status() Status { return l.picture.Load().status }

// OnChange has call called with the Status that is there, and with each new one; those in between
// may be left out. AsOf and Bytes alone are no change. The calls come one after the other from a
// goroutine of their own. call must not call Close. stop ends it, and does not wait for a call.
func (l *List) OnChange(call func(Status)) (stop func()) {
	ctx, stop := context.WithCancel(l.client.ctx)
	l.client.spawn(func() {
		for last := (Status{}); ctx.Err() == nil; {
			p := l.picture.Load()
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

// same reports whether two are equal to a listener.
func (s Status) same(other Status) bool {
	s.AsOf, s.Bytes = other.AsOf, other.Bytes
	return s == other
}
