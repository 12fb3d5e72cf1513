package registry

import "time"

// want returns the page to fetch next, if one is due. The view then waits for loadPage, changesPage
// or failed with the number of the fetch.
func (v *view) want(now time.Duration) (f fetch, due bool) {
	f, f.number, due = v.fetch.Take(now)
	return f, due
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
	v.waiting, v.sure = false, ""
	v.loads++
	v.fetch.Begin(fetch{load: true, cursor: "0"}, at)
}

// catchUp fetches the changes since the view's own revision.
func (v *view) catchUp(at time.Duration) {
	v.fetch.Begin(fetch{since: v.head.Revision, birth: v.head.Birth}, at)
}

// loadPage takes over a page of a load.
func (v *view) loadPage(number uint64, p *page, now time.Duration) {
	v.heard(now)
	f, current := v.fetch.Answered(number)
	if !current {
		return
	}
	if f.cursor == "0" {
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
		v.fetch.Begin(fetch{load: true, cursor: p.cursor}, now)
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
	v.fetch.Begin(fetch{since: since, birth: v.head.Birth}, now)
}

// changesPage takes over a page of changes.
func (v *view) changesPage(number uint64, p *page, now time.Duration) {
	v.heard(now)
	f, current := v.fetch.Answered(number)
	if !current {
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
		v.fetch.Begin(f, now)
		return
	}
	why := v.head.Why
	if v.head = p.head; v.head.Why == "" && len(v.instances) == 0 {
		v.head.Why = why
	}
	v.loaded, v.disk, v.lost, v.dirty = true, false, false, true
	if v.fetch.Replay(func(c *change) { v.event(c, now) }) {
		v.catchUp(now)
	}
}
