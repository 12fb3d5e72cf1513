package namelist

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/follow"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

const (
	// headOnly is a revision that no list reaches: the delta after it has only the head.
	headOnly = 1 << 53
	// staleAfter is the silence after which answers are stale.
	staleAfter = 3 * time.Second
	// spread is the time over which clients spread loads that many would make at the same moment.
	spread = time.Second
)

// view is what a client knows of one list: a state machine without clock and I/O. Its owner calls
// it from one goroutine with now, the time since a fixed moment. The owner carries out what want
// and wantBlock ask for, and publishes what snapshot makes.
//
//	fetching --last page--> following --a hole; another birth or history; a revision that goes back--> fetching
//
// Invariant: while it is following, edits has every change above since, up to revision, and head is
// the head at that revision. A version is shown only if its base is not below since; until then the
// view shows what it showed before.
type view struct {
	list string

	head     *lists.Head // nil: there is none, and gone says why
	gone     Reason
	birth    string // of the last head
	history  string // of the server's data
	revision int64
	since    int64
	edits    *edits
	// serving and next are the versions of head, with what is loaded of them.
	serving, next *loaded

	fetch  follow.Fetch[fetch, lists.Event] // idle while the view is following
	staged *edits                           // built from the pages so far

	// sure is when the list was last known to be at revision.
	sure    time.Duration
	redisMS int64 // Redis' time at redisAt; 0 while unknown
	redisAt time.Duration

	shown shown
	stale bool // true if the last snapshot was
	dirty bool // true if a snapshot is due
	gaps  int  // for metrics
}

// shown is what snapshots show.
type shown struct {
	why      Reason
	head     *lists.Head
	version  *loaded
	revision int64
	edits    *edits
	sure     time.Duration
}

// fetch is a page of a delta that a view wants.
type fetch struct {
	number uint64
	after  int64
	// fresh is true if the pages replace the edits; they begin at base.
	fresh bool
	base  int64
	first bool // true for the first page
}

func newView(list string, now time.Duration) *view {
	v := &view{list: list, edits: noEdits, sure: now}
	v.show(shown{why: ReasonNotLoaded})
	v.reload(now)
	return v
}

// reload starts with the head, without edits.
func (v *view) reload(at time.Duration) { v.fresh(headOnly, at) }

// fresh fetches all edits above base.
func (v *view) fresh(base int64, at time.Duration) {
	v.staged = noEdits
	v.fetch.Begin(fetch{after: base, fresh: true, base: base, first: true}, at)
}

// catchUp fetches what came after the view's own revision.
func (v *view) catchUp(at time.Duration) {
	v.staged = v.edits
	v.fetch.Begin(fetch{after: v.revision, first: true}, at)
}

// want returns the page to fetch next, if one is due. delta or fetch.Failed answers it.
func (v *view) want(now time.Duration) (f fetch, due bool) {
	f, f.number, due = v.fetch.Take(now)
	return f, due
}

// delta takes over the page that want asked for, in a request sent at sent.
func (v *view) delta(number uint64, d *lists.Delta, sent, now time.Duration) {
	f, current := v.fetch.Answered(number)
	if !current {
		return
	}
	v.clock(d.Head.At, sent)
	h := &d.Head
	switch {
	case h.Birth == "" && v.birth == "":
		v.history = d.History
		v.lose(nil, ReasonListUnknown, now)
		return
	case h.Birth == "": // a list that has gone leaves a tombstone: this is a fault of the control server
		v.fetch.Begin(f, now+time.Second)
		return
	case h.State == lists.Deleted || h.State == lists.Deleting:
		v.history = d.History
		v.lose(h, ReasonDeleted, now)
		return
	case v.birth != "" && v.birth != h.Birth:
		v.forget(now)
		return
	case !f.first && (d.History != v.history || h.Revision < f.after),
		!f.fresh && (d.History != v.history || h.Revision < f.after || h.Floor > f.after):
		v.reload(now)
		return
	}
	v.birth, v.history = h.Birth, d.History
	for i := range d.Edits {
		v.staged = v.staged.with(h.Seed, d.Edits[i].Revision, d.Edits[i].Changes)
	}
	if d.More && len(d.Edits) > 0 {
		f.after, f.first = d.Edits[len(d.Edits)-1].Revision, false
		v.fetch.Begin(f, now)
		return
	}
	if f.fresh {
		v.since = min(f.base, h.Revision)
	}
	v.edits, v.staged, v.revision, v.sure = v.staged, nil, h.Revision, sent
	v.setHead(h, now)
	v.replay(now)
}

// forget drops the list, because another list has taken its name.
func (v *view) forget(now time.Duration) {
	v.birth, v.head, v.serving, v.next = "", nil, nil, nil
	v.show(shown{why: ReasonNotLoaded})
	v.reload(now)
}

// replay takes over the events that came while a fetch was under way.
func (v *view) replay(now time.Duration) {
	if v.fetch.Replay(func(e lists.Event) { v.event(&e, now) }) {
		v.catchUp(now)
	}
}

// lose records that the list does not exist, or no longer.
func (v *view) lose(h *lists.Head, why Reason, now time.Duration) {
	v.head, v.gone, v.serving, v.next = nil, why, nil, nil
	v.edits, v.staged, v.revision, v.since, v.sure = noEdits, nil, 0, 0, now
	if h != nil {
		v.birth, v.revision = h.Birth, h.Revision
	}
	v.show(shown{why: why})
	v.replay(now)
}

// event takes over a message of the list's channel.
func (v *view) event(e *lists.Event, now time.Duration) {
	switch {
	case !v.fetch.Idle():
		v.fetch.Hold(*e)
	case v.head == nil:
		if e.Birth != v.birth || e.Revision > v.revision {
			v.birth = ""
			v.reload(now)
		}
	case e.Birth != v.birth:
		v.forget(now)
	case e.History != "" && v.history != "" && e.History != v.history: // the revisions may come from both
		v.reload(now + rand.N(spread))
	case e.Revision <= v.revision:
	case e.Head == nil && len(e.Changes) == 0: // the edit is too large for a message, or came by HTTP
		v.catchUp(now)
	case e.Revision > v.revision+1:
		v.gaps++
		v.catchUp(now)
	default:
		v.apply(e, now)
	}
}

func (v *view) apply(e *lists.Event, now time.Duration) {
	v.revision = e.Revision
	if v.redisMS > 0 { // at e.At the list was at this revision
		v.sure = max(v.sure, min(now, v.redisAt+time.Duration(e.At.UnixMilli()-v.redisMS)*time.Millisecond))
	}
	if len(e.Changes) > 0 {
		v.edits = v.edits.with(v.head.Seed, e.Revision, e.Changes)
	}
	switch h := e.Head; {
	case h == nil:
		v.complete(now)
	case h.State == lists.Deleted || h.State == lists.Deleting:
		v.lose(h, ReasonDeleted, now)
	default:
		v.setHead(h, now)
	}
}

// asked is what a look must know of a view when it is sent.
type asked struct {
	revision int64
	fetches  uint64
}

func (v *view) ask() asked { return asked{revision: v.revision, fetches: v.fetch.Number()} }

// looked takes over the result of a look that was sent at sent.
func (v *view) looked(a asked, m lists.Mark, history string, at time.Time, sent, now time.Duration) {
	if !v.fetch.Idle() || a.fetches != v.fetch.Number() {
		return // it is older than what the view is about to get
	}
	v.clock(at, sent)
	other := history != "" && history != v.history
	switch {
	case v.head == nil && (m.Birth == "" || v.gone == ReasonDeleted && m.Birth == v.birth && m.Revision <= v.revision):
		v.sure = sent
		v.show(shown{why: v.gone})
	case v.head == nil:
		v.birth = ""
		v.reload(now)
	case other: // the revisions since may come from both
		v.reload(now + rand.N(spread))
	case m.Birth != v.birth, m.Revision < a.revision:
		v.reload(now)
	case m.Revision > v.revision:
		v.catchUp(now)
	default:
		v.sure = max(v.sure, sent)
		v.complete(now)
	}
}

// clock takes over Redis' time from an answer.
func (v *view) clock(at time.Time, sent time.Duration) {
	v.redisMS, v.redisAt = at.UnixMilli(), sent
}

// tick lets time pass.
func (v *view) tick(now time.Duration) {
	if v.stale != v.silent(now) {
		v.dirty = true
	}
}

// silent reports whether the shown data is older than staleAfter.
func (v *view) silent(now time.Duration) bool { return now-v.shown.sure > staleAfter }

// setHead takes over the head at the view's revision.
func (v *view) setHead(h *lists.Head, now time.Duration) {
	first := v.serving == nil
	v.head, v.gone = h, ReasonNone
	serving, next := v.loadedOf(h.Serving), v.loadedOf(h.Next)
	if serving != nil && serving != v.serving && serving != v.next && !first {
		serving.notBefore = now + rand.N(spread)
	}
	if next != nil && next != v.serving && next != v.next {
		next.notBefore = now + rand.N(spread)
	}
	v.serving, v.next = serving, next
	for _, l := range []*loaded{serving, next} {
		if l != nil {
			l.wanted = h.Whole && l.version.Count <= lists.MaxWhole
		}
	}
	v.complete(now)
}

// loadedOf returns what is loaded of a version.
func (v *view) loadedOf(of *lists.Version) *loaded {
	if of == nil {
		return nil
	}
	for _, l := range []*loaded{v.serving, v.next, v.shown.version} {
		if l != nil && l.version.Build == of.Build && l.version.Number == of.Number {
			return l
		}
	}
	return newLoaded(of)
}

// complete shows the serving version once all its edits are there, and fetches missing ones.
func (v *view) complete(now time.Duration) {
	h := v.head
	if lowest := v.lowest(); lowest < v.since && h.Floor <= lowest {
		v.fresh(lowest, now)
	}
	switch {
	case !known(h):
		v.show(shown{why: ReasonFormat, head: h})
	case h.Serving == nil:
		v.show(shown{why: ReasonDraft, head: h})
	case h.Serving.Base >= v.since && h.Serving.Base >= h.Floor:
		if v.fetch.Idle() && v.next == nil && h.Serving.Base > v.since {
			v.edits, v.since = v.edits.above(h.Seed, h.Serving.Base), h.Serving.Base
		}
		v.show(shown{head: h, version: v.serving, revision: v.revision, edits: v.edits})
	}
}

// lowest returns the revision above which edits are needed.
func (v *view) lowest() int64 {
	lowest := v.since
	for _, l := range []*lists.Version{v.head.Serving, v.head.Next} {
		if l != nil && (l.Base >= v.head.Floor || l == v.head.Serving) {
			lowest = min(lowest, l.Base)
		}
	}
	return lowest
}

func (v *view) show(s shown) {
	s.sure = v.sure
	v.shown, v.dirty = s, true
}

// known reports whether this release knows the form of a head. It also checks what a lookup relies
// on.
func known(h *lists.Head) bool {
	for _, of := range []*lists.Version{h.Serving, h.Next} {
		if of != nil && (of.Segments == 0 || of.BlockBits > filter.MaxBlockBits || len(of.Build) != 32) {
			return false
		}
	}
	return slices.Contains(form.Forms(), h.Form)
}
