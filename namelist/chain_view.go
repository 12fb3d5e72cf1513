package namelist

import (
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/follow"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
)

// listPatience is how long a new version of a chain waits for lists that were not followed before.
const listPatience = time.Second

// chainView is what a client knows of one chain: a state machine without clock and I/O, which is
// used like a view.
//
//	fetching --record, and its lists are there--> following --another mark or history--> fetching
type chainView struct {
	name    string
	mark    lists.Mark // of the last record; zero if there is no chain
	history string     // of the server's data; empty until a look said it
	fetch   follow.Fetch[struct{}, lists.Event]
	// next waits until its lists are there; nil if nothing waits.
	next  *chainNext
	shown chainState // without replaced
	sure  time.Duration
	stale bool // true if the last state was
	dirty bool // true if a state is due
}

// chainNext is a state that waits for its lists.
type chainNext struct {
	state chainState
	since time.Duration
}

func newChainView(name string, now time.Duration) *chainView {
	v := &chainView{name: name, sure: now}
	v.shown.status = ChainStatus{Chain: name, Reason: ChainReasonNotLoaded}
	v.fetch.Begin(struct{}{}, now)
	return v
}

// event takes over a message of the chain's channel.
func (v *chainView) event(e *lists.Event, now time.Duration) {
	switch {
	case !v.fetch.Idle():
		v.fetch.Hold(*e)
	case e.Birth != v.mark.Birth || e.Revision > v.mark.Revision:
		v.fetch.Begin(struct{}{}, now)
	}
}

// looked takes over the result of a look that was sent at sent.
func (v *chainView) looked(fetches uint64, m lists.Mark, history string, sent, now time.Duration) {
	if !v.fetch.Idle() || fetches != v.fetch.Number() {
		return // it is older than what the view is about to get
	}
	other := history != "" && v.history != "" && history != v.history
	if history != "" {
		v.history = history
	}
	switch {
	case other: // the same mark may stand for another document
		v.fetch.Begin(struct{}{}, now+rand.N(spread))
	case m != v.mark:
		v.fetch.Begin(struct{}{}, now)
	default:
		v.sure, v.dirty = max(v.sure, sent), true
	}
}

// answered takes over the record that was asked for at sent, or that there is none. open returns
// the list with a name.
func (v *chainView) answered(number uint64, r *lists.ChainRecord, open func(string) *List, sent, now time.Duration) {
	if _, current := v.fetch.Answered(number); !current {
		return
	}
	v.mark, v.sure = r.Mark, sent
	v.next = &chainNext{state: v.stateOf(r, open), since: now}
	if v.fetch.Replay(func(e lists.Event) { v.event(&e, now) }) {
		v.fetch.Begin(struct{}{}, now)
	}
}

// restore takes over a record from the disk, which was the chain's at sure, unless the server was
// faster.
func (v *chainView) restore(r *lists.ChainRecord, open func(string) *List, sure, now time.Duration) {
	if v.next == nil && v.shown.status.Reason == ChainReasonNotLoaded {
		v.next, v.sure = &chainNext{state: v.stateOf(r, open), since: now}, sure
	}
}

// stateOf compiles a record.
func (v *chainView) stateOf(r *lists.ChainRecord, open func(string) *List) (s chainState) {
	s.status = ChainStatus{Chain: v.name, Version: r.Version, Revision: r.Mark.Revision}
	if r.Mark.Birth == "" {
		s.status.Reason = ChainReasonChainUnknown
		return s
	}
	var ok bool
	if s.serving, ok = rules(r.Document, r.Version, open); !ok {
		s.status.Reason = ChainReasonFormat
		return s
	}
	s.record, s.status.Rules = r, len(s.serving.chain.RuleNames())
	s.shadow, s.status.Shadow = rules(r.Shadow, 0, open)
	return s
}

// rules compiles a document, and opens its lists.
func rules(document string, version int64, open func(string) *List) (r ruleset, ok bool) {
	if document == "" {
		return r, false
	}
	compiled, err := chain.Compile([]byte(document), version)
	if err != nil {
		return r, false
	}
	r.chain = compiled
	for _, name := range compiled.Lists() {
		r.lists = append(r.lists, open(name))
	}
	return r, true
}

// tick lets time pass, and shows the next state once its lists are there.
func (v *chainView) tick(now time.Duration) {
	if v.next != nil && (now-v.next.since > listPatience || v.next.state.serving.there()) {
		v.shown, v.next, v.dirty = v.next.state, nil, true
	}
	v.dirty = v.dirty || v.stale != v.silent(now)
}

// there reports whether the heads of all lists have come.
func (r *ruleset) there() bool {
	for _, l := range r.lists {
		if l.snapshot.Load().why == ReasonNotLoaded {
			return false
		}
	}
	return true
}

func (v *chainView) silent(now time.Duration) bool { return now-v.sure > staleAfter }

// state returns what the view shows now. All times of the view count from begun.
func (v *chainView) state(begun time.Time, now time.Duration) *chainState {
	v.stale, v.dirty = v.silent(now), false
	s := v.shown
	s.status.AsOf, s.status.Stale, s.replaced = begun.Add(v.sure), v.stale, make(chan struct{})
	return &s
}
