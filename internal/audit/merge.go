package audit

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// position is a place between two entries of both streams, whose ids come from one clock. Entries
// are ordered by id, the newest first; of two with the same id the operator's comes first. So the
// order is exact from one millisecond to the next, and in each stream.
type position struct {
	ms, seq uint64
	// own is true behind an entry of tenants, so that an operator's with the same id comes before.
	own bool
	// start is true before the first entry.
	start bool
}

// ownMark ends the cursor behind an entry of tenants.
const ownMark = "-own"

func (p position) String() string {
	text := strconv.FormatUint(p.ms, 10) + "-" + strconv.FormatUint(p.seq, 10)
	if p.own {
		text += ownMark
	}
	return text
}

// decodeCursor returns the position of a cursor; "" is the start.
func decodeCursor(cursor string) (position, error) {
	if cursor == "" {
		return position{start: true}, nil
	}
	id, own := strings.CutSuffix(cursor, ownMark)
	p, ok := positionOf(id, own)
	if !ok {
		return p, freeslot.Invalid("cursor", "is %.40q, expected one of the page before", cursor)
	}
	return p, nil
}

// positionOf returns the position behind the entry with this id.
func positionOf(id string, own bool) (p position, ok bool) {
	ms, seq, ok := strings.Cut(id, "-")
	var errMS, errSeq error
	p.own = own
	p.ms, errMS = strconv.ParseUint(ms, 10, 64)
	p.seq, errSeq = strconv.ParseUint(seq, 10, 64)
	return p, ok && errMS == nil && errSeq == nil
}

// before reports whether an entry behind which p is comes before the one behind which q is.
func (p position) before(q position) bool {
	switch {
	case p.ms != q.ms:
		return p.ms > q.ms
	case p.seq != q.seq:
		return p.seq > q.seq
	}
	return !p.own && q.own
}

// end returns the upper end, for XREVRANGE, of the entries behind p in one of the streams.
func (p position) end(own bool) string {
	switch {
	case p.start:
		return "+"
	case own && !p.own: // tenants' entry with the same id comes behind the operator's
		return p.String()
	}
	return "(" + strings.TrimSuffix(p.String(), ownMark)
}

// merge reads both streams as one, the newest entries first. It is for one goroutine.
type merge struct {
	store  *store
	at     position
	halves [2]half // operators, tenants
	// calls counts the calls to Redis that may still be made.
	calls int
	// since is the time at which the oldest entry of interest ended, in ms.
	since int64
}

// half is one of the streams.
type half struct {
	key  string
	own  bool
	page []rueidis.XRangeEntry
	// end is where the next page begins; "" if there is none.
	end string
}

// newMerge makes a reader of the entries behind at. Entries that ended long before sinceMS began
// before it, so the reader ends there.
func (s *store) newMerge(at position, sinceMS int64) *merge {
	return &merge{
		store: s, at: at, calls: mostPages, since: sinceMS - oldAfter.Milliseconds(),
		halves: [2]half{
			{key: s.keys.operators.ended, end: at.end(false)},
			{key: s.keys.tenants.ended, end: at.end(true), own: true},
		},
	}
}

// next returns the next entry; it has no ID where the stream has something else. more is false at
// the end, and after mostPages calls.
func (m *merge) next(ctx context.Context) (e Entry, more bool, err error) {
	var first *half
	for i := range m.halves {
		h := &m.halves[i]
		if ready, err := m.fill(ctx, h); !ready || err != nil {
			return Entry{}, false, err
		}
		if len(h.page) > 0 && (first == nil || h.position().before(first.position())) {
			first = h
		}
	}
	if first == nil {
		return Entry{}, false, nil
	}
	if m.at = first.position(); m.since > 0 && int64(m.at.ms) < m.since {
		m.halves = [2]half{}
		return Entry{}, false, nil
	}
	e, _ = decode(first.page[0].FieldValues["entry"])
	e.EndedMS = int64(m.at.ms)
	first.page = first.page[1:]
	return e, true, nil
}

// cursor returns the cursor behind the last entry; "" at the end.
func (m *merge) cursor() string {
	for _, h := range m.halves {
		if len(h.page) > 0 || h.end != "" {
			return m.at.String()
		}
	}
	return ""
}

// fill reads the next page of a half that has none. It returns false if no further call may be
// made.
func (m *merge) fill(ctx context.Context, h *half) (ready bool, err error) {
	if len(h.page) > 0 || h.end == "" {
		return true, nil
	}
	if m.calls == 0 {
		return false, nil
	}
	m.calls--
	r := m.store.runner
	h.page, err = r.Do(ctx, "audit", r.B().Xrevrange().
		Key(h.key).End(h.end).Start("-").Count(pageEntries).Build()).AsXRange()
	if err != nil {
		return false, err
	}
	if h.end = ""; len(h.page) == pageEntries {
		h.end = "(" + h.page[len(h.page)-1].ID
	}
	return true, nil
}

// position returns the position behind the first entry of the page.
func (h *half) position() position {
	p, _ := positionOf(h.page[0].ID, h.own)
	return p
}
