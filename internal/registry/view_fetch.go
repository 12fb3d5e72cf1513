package registry

import "time"

// The wait after a failed fetch doubles.
const (
	firstFetchRetry = 50 * time.Millisecond
	lastFetchRetry  = 5 * time.Second
)

// want returns the page to fetch next, if one is due. The view then waits for loadPage, changesPage
// or failed with the number of the fetch.
func (v *view) want(now time.Duration) (f fetch, due bool) {
	if v.pending || v.phase != phaseLoading && v.phase != phaseCatching || now < v.notBefore {
		return f, false
	}
	v.pending = true
	v.waiting, v.overflow = nil, false // the answer includes what they say
	return v.fetch, true
}

// wantAt returns when want has something; false if it waits for something else.
func (v *view) wantAt() (at time.Duration, ok bool) {
	return v.notBefore, !v.pending && (v.phase == phaseLoading || v.phase == phaseCatching)
}

// next makes a fetch the one that is due. Answers of earlier ones are ignored from now on.
func (v *view) next(f fetch, at time.Duration) {
	f.number = v.fetch.number + 1
	v.fetch, v.pending, v.notBefore = f, false, at
}

// lose begins a load because Redis has lost data. What the load does not bring stays, unconfirmed.
func (v *view) lose(now time.Duration) {
	if len(v.instances) == 0 {
		v.begin(now)
		return
	}
	v.lost, v.dirty = true, true
	v.begin(now + v.cfg.spread)
}

// begin begins a load.
func (v *view) begin(at time.Duration) {
	v.phase, v.sure = phaseLoading, ""
	v.loads++
	v.next(fetch{load: true, cursor: "0"}, at)
}

// catchUp fetches the changes since the view's own revision.
func (v *view) catchUp(at time.Duration) {
	v.phase = phaseCatching
	v.next(fetch{since: v.head.Revision, birth: v.head.Birth}, at)
}

// failed makes a fetch that brought nothing due again.
func (v *view) failed(number uint64, now time.Duration) {
	if number != v.fetch.number || !v.pending {
		return
	}
	v.pending = false
	v.notBefore = now + min(firstFetchRetry<<min(v.failures, 10), lastFetchRetry)
	v.failures++
}

// answer reports whether an answer belongs to the fetch under way.
func (v *view) answer(number uint64, now time.Duration) bool {
	v.heard(now)
	if number != v.fetch.number || !v.pending {
		return false
	}
	v.pending, v.failures = false, 0
	return true
}

// loadPage takes over a page of a load.
func (v *view) loadPage(number uint64, p *page, now time.Duration) {
	if !v.answer(number, now) {
		return
	}
	if v.fetch.cursor == "0" {
		v.loadHead = p.head
	} else if v.loadHead.Birth != p.head.Birth || p.head.Revision < v.loadHead.Revision {
		v.lost = true // Redis has lost data since the first page
		v.begin(now)
		return
	}
	for i := range p.entries {
		v.takePage(&p.entries[i])
	}
	if p.cursor != "0" {
		v.next(fetch{load: true, cursor: p.cursor}, now)
		return
	}
	v.endLoad(now)
}

// takePage takes an entry unless it is unchanged.
func (v *view) takePage(e *entry) {
	h := v.instances[e.ID]
	_, unconfirmed := v.unconfirmed[e.ID]
	if h == nil || unconfirmed || v.lost || v.disk || v.loadHead.Birth != v.head.Birth || h.in.Revision != e.Revision ||
		h.in.Metrics != nil {
		v.take(e)
		return
	}
	h.load = v.loads
}

// endLoad settles what the load did not bring, and goes on with the changes since.
func (v *view) endLoad(now time.Duration) {
	had := v.loaded || v.disk
	same := had && v.loadHead.Birth == v.head.Birth
	lost := had && (v.lost || !same)
	for id, h := range v.instances {
		switch _, already := v.unconfirmed[id]; {
		case h.load == v.loads || already:
		case lost:
			v.unconfirmed[id] = now
			in := *h.in
			in.Unconfirmed, in.Late = true, false
			v.put(h, &in)
		default:
			v.remove(id)
		}
	}
	before := v.head
	v.head = v.loadHead
	if v.head.Why == "" {
		v.head.Why = before.Why // the record of an empty service ends after a week
	}
	since := v.loadHead.Revision
	if same && lost && before.Revision < since {
		since = before.Revision // it has the ids that left meanwhile, in the right order
	}
	v.phase = phaseCatching
	v.next(fetch{since: since, birth: v.head.Birth}, now)
}

// changesPage takes over a page of changes.
func (v *view) changesPage(number uint64, p *page, now time.Duration) {
	f := v.fetch
	if !v.answer(number, now) {
		return
	}
	if p.reload {
		switch {
		case p.head.Birth != v.head.Birth || p.head.Revision < v.head.Revision:
			v.lose(now)
		case f.since < v.head.Revision: // it asked for more than a load needs
			v.catchUp(now)
		default:
			v.begin(now)
		}
		return
	}
	for i := range p.entries {
		v.take(&p.entries[i])
	}
	if p.more {
		f.since = p.entries[len(p.entries)-1].Revision
		v.head.Revision = max(v.head.Revision, f.since)
		v.next(f, now)
		return
	}
	why := v.head.Why
	if v.head = p.head; v.head.Why == "" && len(v.instances) == 0 {
		v.head.Why = why
	}
	v.phase, v.loaded, v.disk, v.lost, v.dirty = phaseFollowing, true, false, false, true
	v.replay(now)
}

// replay takes over the events that came while the last page was fetched.
func (v *view) replay(now time.Duration) {
	waiting, overflow := v.waiting, v.overflow
	v.waiting, v.overflow = nil, false
	for _, c := range waiting {
		v.event(c, now)
	}
	if overflow && v.phase == phaseFollowing {
		v.catchUp(now)
	}
}
