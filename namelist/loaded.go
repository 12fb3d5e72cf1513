package namelist

import (
	"errors"
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
)

// blockOverhead is what a block costs beside its bits.
const blockOverhead = 128

// loaded is what a client has of one version.
type loaded struct {
	version *lists.Version
	build   *build
	// blocks are the filter's; those that are not there are nil. Pictures share them, so a new block
	// makes a new slice. Without a filter it is empty.
	blocks []*filter.Block
	keys   []uint32        // of each block
	asked  map[uint32]bool // blocks that are being loaded
	have   int
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

// each is what a block is expected to need.
func (l *loaded) each() int64 { return l.version.FilterBytes>>l.version.BlockBits + blockOverhead }

// missing is the first block that is neither there nor being loaded.
func (l *loaded) missing() (index uint32, ok bool) {
	if l.refused || l.have+len(l.asked) == len(l.blocks) {
		return 0, false
	}
	for i, b := range l.blocks {
		if b == nil && !l.asked[uint32(i)] {
			return uint32(i), true
		}
	}
	return 0, false
}

// complete reports whether all blocks that fit are there.
func (l *loaded) complete(fits func(bytes int64) bool) bool {
	_, missing := l.missing()
	return len(l.asked) == 0 && !(missing && fits(l.each()))
}

// put adds a block of so many keys.
func (l *loaded) put(index uint32, b *filter.Block, keys uint32) {
	l.blocks = append([]*filter.Block(nil), l.blocks...)
	l.blocks[index], l.keys[index] = b, keys
	l.have++
	l.bytes += b.Bytes() + blockOverhead
}

// wantBlock is the block to load next: of the serving version first. block answers it.
func (v *view) wantBlock(now time.Duration, fits func(bytes int64) bool) (l *loaded, index uint32, due bool) {
	for _, l := range []*loaded{v.serving, v.next} {
		if l == nil || now < l.notBefore {
			continue
		}
		if index, ok := l.missing(); ok && fits(l.each()) {
			l.asked[index] = true
			return l, index, true
		}
	}
	return nil, 0, false
}

// block takes a block, or why there is none.
func (v *view) block(l *loaded, index uint32, b *filter.Block, keys uint32, err error, now time.Duration) {
	delete(l.asked, index)
	switch {
	case errors.Is(err, filter.ErrFormat):
		l.refused = true
	case err != nil:
		l.notBefore = now + retry(l.failures)
		l.failures++
	default:
		l.failures = 0
		l.put(index, b, keys)
	}
	v.dirty = v.dirty || l == v.shown.version
}

// bytes is what the list needs, with what is being loaded.
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
			n += l.bytes + int64(len(l.asked))*l.each()
		}
	}
	return n
}
