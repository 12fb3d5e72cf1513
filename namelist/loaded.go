package namelist

import (
	"errors"
	"math"
	"time"

	"github.com/freeslot/freeslot/internal/follow"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

const (
	// blockOverhead is the memory that a block needs in addition to its bits; idOverhead is what an
	// id of a whole version needs in addition to its bytes.
	blockOverhead = 128
	idOverhead    = 56
	// allIDs takes the place of a block's index to mean all ids of a version.
	allIDs = math.MaxUint32
)

// loaded is what a client has of one version.
type loaded struct {
	version *lists.Version
	build   *build
	// blocks holds the filter's blocks; missing ones are nil. Pictures share them, so a new block
	// makes a new slice. Without a filter it is empty.
	blocks []*filter.Block
	keys   []uint32        // of each block
	asked  map[uint32]bool // blocks that are being loaded
	have   int
	// whole has the expiry of each id, in Unix ms, 0 for never. wanted is true to load it instead
	// of the blocks.
	wanted bool
	whole  map[string]int64
	bytes  int64

	notBefore time.Duration
	failures  int
	refused   bool // this release does not know the form of the blocks
}

func newLoaded(v *lists.Version) *loaded {
	l := &loaded{version: v, build: &build{id: v.Build}, asked: make(map[uint32]bool)}
	if (v.Filter == filter.Fuse || v.Filter == filter.Bloom) && v.FilterBytes > 0 && v.BlockBits <= filter.MaxBlockBits {
		l.blocks, l.keys = make([]*filter.Block, 1<<v.BlockBits), make([]uint32, 1<<v.BlockBits)
	}
	return l
}

// need returns the memory that a block, or all ids, are expected to need.
func (l *loaded) need(index uint32) int64 {
	if index == allIDs {
		return l.version.Count * (idOverhead + form.CompactBytes/2)
	}
	return l.version.FilterBytes>>l.version.BlockBits + blockOverhead
}

// missing returns the first block that is neither there nor being loaded.
func (l *loaded) missing() (index uint32, ok bool) {
	switch {
	case l.whole != nil, l.asked[allIDs]:
		return 0, false
	case l.wanted:
		return allIDs, true
	case l.refused, l.have+len(l.asked) == len(l.blocks):
		return 0, false
	}
	for i, b := range l.blocks {
		if b == nil && !l.asked[uint32(i)] {
			return uint32(i), true
		}
	}
	return 0, false
}

// complete reports whether everything that fits is there.
func (l *loaded) complete(fits func(bytes int64) bool) bool {
	index, missing := l.missing()
	return len(l.asked) == 0 && !(missing && fits(l.need(index)))
}

// put adds a block with this number of keys.
func (l *loaded) put(index uint32, b *filter.Block, keys uint32) {
	l.blocks = append([]*filter.Block(nil), l.blocks...)
	l.blocks[index], l.keys[index] = b, keys
	l.have++
	l.bytes += b.Bytes() + blockOverhead
}

// wantBlock returns the block to load next, or allIDs. The serving version comes first. block,
// whole or notLoaded answers it.
func (v *view) wantBlock(now time.Duration, fits func(bytes int64) bool) (l *loaded, index uint32, due bool) {
	for _, l := range []*loaded{v.serving, v.next} {
		if l == nil || now < l.notBefore {
			continue
		}
		index, ok := l.missing()
		if index == allIDs && !fits(l.need(index)) {
			l.wanted = false
			index, ok = l.missing()
		}
		if ok && fits(l.need(index)) {
			l.asked[index] = true
			return l, index, true
		}
	}
	return nil, 0, false
}

// block takes over a block.
func (v *view) block(l *loaded, index uint32, b *filter.Block, keys uint32) {
	delete(l.asked, index)
	l.failures = 0
	l.put(index, b, keys)
	v.dirty = true
}

// whole takes over all ids.
func (v *view) whole(l *loaded, ids map[string]int64) {
	delete(l.asked, allIDs)
	l.failures = 0
	l.putWhole(ids)
	v.dirty = true
}

func (l *loaded) putWhole(ids map[string]int64) {
	l.whole = ids
	for id := range ids {
		l.bytes += idOverhead + int64(len(id))
	}
}

// notLoaded records that a block, or the ids, did not come.
func (v *view) notLoaded(l *loaded, index uint32, err error, now time.Duration) {
	delete(l.asked, index)
	l.refused = l.refused || errors.Is(err, filter.ErrFormat)
	l.notBefore = now + follow.Retry(l.failures)
	l.failures++
	v.dirty = true
}

// bytes returns the memory that the list needs, including what is being loaded.
func (v *view) bytes() int64 {
	n := v.edits.bytes
	if v.staged != nil && v.staged != v.edits {
		n += v.staged.bytes
	}
	if s := v.shown.edits; s != nil && s != v.edits {
		n += s.bytes
	}
	all := []*loaded{v.serving, v.next}
	if old := v.shown.version; old != v.serving && old != v.next {
		all = append(all, old)
	}
	for _, l := range all {
		if l != nil {
			n += l.bytes
			for index := range l.asked {
				n += l.need(index)
			}
		}
	}
	return n
}
