package namelist

import (
	"maps"
	"math/bits"
	"slices"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

const (
	removed = -1
	// recentLimit bounds the map that each edit copies. Beyond it, and beyond an eighth of frozen,
	// the two maps become one.
	recentLimit = 256
	// editBytes is the memory that an edited id needs in addition to its bytes, measured on maps of
	// 10,000.
	editBytes = 64
	// bitWords is the largest number of entries that share a word of 64 bits: 16 to 32 bits an
	// entry.
	bitWords = 4
)

// edits holds the last change of each id. It is immutable: with makes a new one. One serves all
// versions of a list: a version's edits are those above its base. What an id was before the last
// change at or below the base is in the version.
type edits struct {
	frozen, recent map[string]change
	// seen has the bit of each edited id, at its hash modulo the number of bits, which is a power
	// of two. Thanks to it, most lookups need neither map.
	seen  []uint64
	bytes int64
}

// change holds the revision of an id's last change, and its state afterwards: removed, 0 for an id
// that never expires, or its expiry in Unix ms.
type change struct{ revision, expires int64 }

var noEdits = &edits{}

// get returns the change of an id above base.
func (e *edits) get(hash uint64, id string, base int64) (c change, ok bool) {
	if len(e.seen) == 0 || !e.maybe(hash) {
		return c, false
	}
	if c, ok = e.recent[id]; !ok {
		c, ok = e.frozen[id]
	}
	return c, ok && c.revision > base
}

func (e *edits) maybe(hash uint64) bool {
	return e.seen[hash>>6&uint64(len(e.seen)-1)]&(1<<(hash&63)) != 0
}

func (e *edits) mark(hash uint64) { e.seen[hash>>6&uint64(len(e.seen)-1)] |= 1 << (hash & 63) }

func (e *edits) len() int { return len(e.frozen) + len(e.recent) }

// with returns the edits with one more edit. All hashes use the list's seed.
func (e *edits) with(seed uint64, revision int64, changes []lists.Change) *edits {
	out := &edits{frozen: e.frozen, bytes: e.bytes, recent: make(map[string]change, len(e.recent)+len(changes))}
	maps.Copy(out.recent, e.recent)
	for _, c := range changes {
		at := change{revision: revision, expires: c.ExpiresMS}
		if c.Remove {
			at.expires = removed
		}
		if _, there := out.recent[c.ID]; !there {
			out.bytes += editBytes + int64(len(c.ID))
		}
		out.recent[c.ID] = at
	}
	if len(e.seen) == 0 || len(out.recent) > max(recentLimit, len(out.frozen)/8) {
		return out.above(seed, 0)
	}
	out.seen = slices.Clone(e.seen)
	for _, c := range changes {
		out.mark(form.Sum(seed, c.ID))
	}
	return out
}

// above returns the edits above a revision, in one map.
func (e *edits) above(seed uint64, revision int64) *edits {
	out := &edits{frozen: make(map[string]change, e.len())}
	for id, c := range e.all() {
		if c.revision > revision {
			out.frozen[id] = c
			out.bytes += editBytes + int64(len(id))
		}
	}
	out.index(seed)
	return out
}

// index sets the bits of a complete map.
func (e *edits) index(seed uint64) {
	if len(e.frozen) == 0 {
		return
	}
	e.seen = make([]uint64, 1<<bits.Len(uint(len(e.frozen)+recentLimit)/bitWords))
	for id := range e.frozen {
		e.mark(form.Sum(seed, id))
	}
}

// all yields the last change of each id.
func (e *edits) all() func(yield func(string, change) bool) {
	return func(yield func(string, change) bool) {
		for id, c := range e.frozen {
			if _, newer := e.recent[id]; !newer && !yield(id, c) {
				return
			}
		}
		for id, c := range e.recent {
			if !yield(id, c) {
				return
			}
		}
	}
}
