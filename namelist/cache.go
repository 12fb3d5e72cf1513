package namelist

import (
	"sync"
	"sync/atomic"
)

const (
	cacheWays = 4
	// cacheEntry is the memory that an entry needs in addition to the bytes of its id.
	cacheEntry = 64
)

// cache keeps Redis' answers about ids. It is a table of sets, whose entries get a second chance.
// Reads take no lock. Versions are immutable, so an entry stays right for ever, but only for its
// build.
type cache struct {
	sets  []cacheSet // their number is a power of two
	limit int64      // of bytes

	mu    sync.Mutex
	bytes int64 // guarded by mu
	hand  int   // guarded by mu; the set that gives up an entry next when bytes run short
	way   int   // guarded by mu; the way where the last search for an unused entry ended
}

// cacheSet holds four entries, and fills one line of the processor's cache. tags holds their
// hashes, so that a read seldom touches an entry uselessly.
type cacheSet struct {
	tags    [cacheWays]atomic.Uint64
	entries [cacheWays]atomic.Pointer[cached]
}

// cached is an entry. It is immutable except for used.
type cached struct {
	build *build
	id    string
	entry entry
	used  atomic.Bool // true if it was used since the hand last passed
}

// build identifies a version. It is a type of its own, so that the cache does not keep the filter
// of an old version alive.
type build struct{ id string }

// entry is what a version says of an id: whether it has the id, and until when; 0 means for ever.
type entry struct {
	has     bool
	expires int64
}

// newCache makes a cache of at most limit bytes.
func newCache(limit int64) *cache {
	sets := 1
	for int64(sets)*4*cacheWays*cacheEntry <= limit {
		sets *= 2
	}
	return &cache{sets: make([]cacheSet, sets), limit: limit}
}

func (c *cache) get(b *build, hash uint64, id string) (e entry, ok bool) {
	set := &c.sets[hash&uint64(len(c.sets)-1)]
	for i := range set.tags {
		if set.tags[i].Load() != hash {
			continue
		}
		if at := set.entries[i].Load(); at != nil && at.build == b && at.id == id {
			if !at.used.Load() {
				at.used.Store(true)
			}
			return at.entry, true
		}
	}
	return entry{}, false
}

func (c *cache) put(b *build, hash uint64, id string, e entry) {
	added := &cached{build: b, id: id, entry: e}
	c.mu.Lock()
	defer c.mu.Unlock()
	set := &c.sets[hash&uint64(len(c.sets)-1)]
	way := c.victim(set, hash, b, id)
	c.drop(set, way)
	c.bytes += added.bytes()
	for c.bytes > c.limit && c.hand < 2*len(c.sets) {
		other := &c.sets[c.hand%len(c.sets)]
		c.drop(other, c.victim(other, 0, nil, ""))
		c.hand++
	}
	c.hand %= len(c.sets)
	set.tags[way].Store(hash)
	set.entries[way].Store(added)
}

// victim returns the way of the same id, a free way, or the first way not used since the hand
// passed. The caller holds mu.
func (c *cache) victim(s *cacheSet, hash uint64, b *build, id string) int {
	free := -1
	for i := range cacheWays {
		at := s.entries[i].Load()
		if at == nil {
			free = i
		} else if s.tags[i].Load() == hash && at.build == b && at.id == id {
			return i
		}
	}
	if free >= 0 && b != nil {
		return free
	}
	for {
		c.way = (c.way + 1) % cacheWays
		if at := s.entries[c.way].Load(); at == nil || !at.used.Swap(false) {
			return c.way
		}
	}
}

// drop empties a way. The caller holds mu.
func (c *cache) drop(s *cacheSet, way int) {
	if was := s.entries[way].Swap(nil); was != nil {
		c.bytes -= was.bytes()
	}
}

func (e *cached) bytes() int64 { return cacheEntry + int64(len(e.id)) }
