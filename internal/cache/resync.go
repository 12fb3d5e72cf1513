package cache

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
)

// resync compares the cache with Redis and fetches what changed since; everything,
// when the counter itself is another one. It returns false when Redis did not
// answer: the cache then stays as it is and another comparison follows soon.
func (c *Cache) resync(why string) bool {
	begin := time.Now()
	read, replaced, err := c.fetch()
	if err != nil {
		if c.ctx.Err() == nil {
			c.metrics.resyncErrors.Inc()
			c.log.Warn("cache.resync_failed", zap.String("why", why), zap.Error(err))
		}
		// Soon at first: what failed may have been one connection. Then more and more
		// seldom, up to the interval.
		c.hasten(min(calm<<min(c.follow.failures, 10), c.cfg.RefreshInterval))
		c.follow.failures++
		return false
	}
	c.follow.failures = 0
	c.syncedAt.Store(c.Now())
	c.metrics.resyncNodes.Observe(float64(read))
	if replaced {
		c.log.Info("cache.replaced", zap.String("why", why), zap.Int("nodes", read),
			zap.Uint64("revision", c.revision.Load()), zap.Duration("took", time.Since(begin)))
	}
	return true
}

// fetchTries bounds how often one comparison begins again.
const fetchTries = 3

var errTooFast = errors.New("nodes leave faster than they can be read")

func (c *Cache) fetch() (read int, replaced bool, err error) {
	for range fetchTries {
		n, replacing, again, err := c.fetchOnce()
		read += n
		if err != nil || !again {
			return read, replacing, err
		}
	}
	return read, false, errTooFast
}

// fetchOnce asks to be called again when what it has read lost its meaning on the
// way: the counter is another one, or tombstones were dropped before they were read.
func (c *Cache) fetchOnce() (read int, replacing, again bool, err error) {
	last := c.revision.Load()
	page, err := c.changes(last)
	if err != nil {
		return 0, false, false, err
	}
	replacing = c.follow.suspect || c.syncedAt.Load() == unsynced ||
		page.Generation != c.follow.generation || page.Revision < last || page.Incomplete
	if replacing && last > 0 {
		if page, err = c.changes(0); err != nil {
			return 0, true, false, err
		}
	}
	var present map[string]bool
	if replacing {
		present = make(map[string]bool)
	}
	first := page
	for {
		for i := range page.Nodes {
			c.take(&page.Nodes[i], present)
		}
		read += len(page.Nodes)
		if !page.More {
			break
		}
		if page, err = c.changes(page.Next); err != nil {
			return read, replacing, false, err
		}
		if page.Generation != first.Generation || page.Incomplete && !replacing {
			return read, replacing, true, nil
		}
	}
	if replacing {
		if again, err = c.leftUnseen(&first, &page); again || err != nil {
			return read, true, again, err
		}
		c.sweep(present)
		c.follow.generation, c.follow.suspect = page.Generation, false
	}
	c.revision.Store(page.Next)
	return read, replacing, false, nil
}

// leftUnseen reports whether a node may have left, and its tombstone been dropped,
// between the first and the last page of a replacing load. Incomplete of the pages
// between says nothing here: they ask from revisions of long ago.
func (c *Cache) leftUnseen(first, last *cell.Changes) (bool, error) {
	if first.Revision == last.Revision {
		return false, nil
	}
	page, err := c.changes(first.Revision)
	return page.Incomplete || page.Generation != first.Generation, err
}

func (c *Cache) changes(since cell.Revision) (cell.Changes, error) {
	// The earlier end of the call, so that an error in the offset makes nodes look
	// silent sooner, never later.
	begin := c.Now()
	page, err := c.source.Changes(c.ctx, since, c.cfg.RefreshSize)
	if err == nil {
		c.follow.clockOffset = begin - page.NowMS*int64(time.Millisecond)
	}
	return page, err
}

func (c *Cache) take(state *cell.NodeState, present map[string]bool) {
	if state.Gone {
		c.remove(state.Node.ID)
		delete(present, state.Node.ID)
		return
	}
	c.put(state)
	if present != nil {
		present[state.Node.ID] = true
	}
}

// sweep removes what a replacing load did not bring.
func (c *Cache) sweep(present map[string]bool) {
	c.nodes.Range(func(id string, _ *entry) bool {
		if !present[id] {
			c.remove(id)
		}
		return true
	})
}
