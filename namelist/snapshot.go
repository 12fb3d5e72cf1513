package namelist

import (
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// snapshot is what readers see of a list. It is immutable except for replaced.
type snapshot struct {
	// why is the reason of all answers; none if the list answers.
	why      Reason
	stale    bool
	revision int64
	asOf     time.Time
	status   Status
	// replaced is closed when there is a newer snapshot.
	replaced chan struct{}
	// ready is true if all blocks that fit are loaded.
	ready bool

	// The rest is set only if the list answers.
	head    *lists.Head
	expires int64 // of the whole list, in Unix ms; 0 means never
	version *lists.Version
	build   *build
	edits   *edits
	blocks  []*filter.Block
	keys    []uint32
	whole   map[string]int64 // all ids of the version, if they are loaded
	clock   clock
}

// clock is Redis' time as last measured. It advances with this process' monotonic time.
type clock struct {
	redisMS int64
	at      time.Time
}

func (c clock) ms() int64 { return c.redisMS + time.Since(c.at).Milliseconds() }

// snapshot returns what the view shows now. All times of the view count from begun.
func (v *view) snapshot(begun time.Time, now time.Duration, fits func(bytes int64) bool) *snapshot {
	s := v.shown
	v.stale, v.dirty = v.silent(now), false
	p := &snapshot{
		why: s.why, stale: v.stale, revision: s.revision, asOf: begun.Add(s.sure), replaced: make(chan struct{}),
		clock: clock{redisMS: v.redisMS, at: begun.Add(v.redisAt)},
	}
	p.status = Status{List: v.list, Reason: s.why, Revision: s.revision, AsOf: p.asOf, Stale: p.stale, Bytes: v.bytes()}
	if h := s.head; h != nil {
		p.status.State = string(h.State)
	}
	if v.next != nil {
		p.status.Next, p.status.Prepared = v.next.version.Number, v.prepared(v.next, fits)
	}
	if l := s.version; l != nil {
		p.head, p.version, p.build, p.edits = s.head, l.version, l.build, s.edits
		p.blocks, p.keys, p.whole = l.blocks, l.keys, l.whole
		p.ready = l.complete(fits)
		if !s.head.Expires.IsZero() {
			p.expires = s.head.Expires.UnixMilli()
		}
		p.status.Version, p.status.Blocks, p.status.Loaded, p.status.Edits = l.version.Number, len(
			l.blocks,
		), l.have, s.edits.len()
	}
	return p
}

// prepared reports whether a version can be switched to: its edits are there, and all blocks that
// fit.
func (v *view) prepared(l *loaded, fits func(bytes int64) bool) bool {
	return v.fetch.Idle() && v.since <= l.version.Base && l.complete(fits)
}

// question is an id that a snapshot cannot decide alone.
type question struct {
	id   string // in the list's form
	hash uint64
}

// lookup answers from memory. open is true if only the id's segment can decide, which q asks for.
// With a reason, open means that the list is not loaded.
func (p *snapshot) lookup(a *Answer, c *cache, id string) (q question, open bool) {
	a.Revision, a.AsOf, a.Stale = p.revision, p.asOf, p.stale
	if p.why != ReasonNone {
		a.Reason = p.why
		return q, p.why == ReasonNotLoaded
	}
	a.Version = p.version.Number
	id, err := p.head.Form.Clean(id)
	if err != nil {
		a.Reason = ReasonInvalidID
		return q, false
	}
	if p.expires != 0 && p.clock.ms() >= p.expires {
		a.Reason = ReasonExpired
		if p.head.ExpiredNo {
			a.Verdict = No
		}
		return q, false
	}
	hash := form.Sum(p.head.Seed, id)
	if c, edited := p.edits.get(hash, id, p.version.Base); edited {
		p.decide(a, SourceEdits, entry{has: c.expires != removed, expires: c.expires})
		return q, false
	}
	if p.whole != nil {
		expires, has := p.whole[id]
		p.decide(a, SourceWhole, entry{has: has, expires: expires})
		return q, false
	}
	if len(p.blocks) > 0 {
		if b := p.blocks[form.Block(hash, p.version.BlockBits)]; b != nil && !b.Contains(hash) {
			a.Verdict, a.Source = No, SourceFilter
			return q, false
		}
	}
	if e, ok := c.get(p.build, hash, id); ok {
		p.decide(a, SourceCache, e)
		return q, false
	}
	return question{id: id, hash: hash}, true
}

// decide fills in the answer that a version's or an edit's entry for the id gives.
func (p *snapshot) decide(a *Answer, source Source, e entry) {
	a.Verdict, a.Source = No, source
	switch {
	case !e.has:
	case e.expires == 0:
		a.Verdict = Yes
	case p.clock.ms() < e.expires:
		a.Verdict, a.ExpiresAt = Yes, time.UnixMilli(e.expires)
	}
}
