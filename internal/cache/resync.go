package cache

import (
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
)

// resync compares the cache with Redis and fetches what changed since; everything,
// when the counter itself is another one. It returns false when Redis did not
// answer: the cache then stays as it is and the next comparison tries again.
func (c *Cache) resync(why string) bool {
	begin := time.Now()
	read, replaced, err := c.fetch()
	if err != nil {
		if c.ctx.Err() == nil {
			c.metrics.resyncErrors.Inc()
			c.log.Warn("cache.resync_failed", zap.String("why", why), zap.Error(err))
		}
		return false
	}
	c.syncedAt.Store(c.Now())
	c.metrics.resyncNodes.Observe(float64(read))
	if replaced {
		c.log.Info("cache.replaced", zap.String("why", why), zap.Int("nodes", read),
			zap.Uint64("revision", c.revision.Load()), zap.Duration("took", time.Since(begin)))
	}
	return true
}

func (c *Cache) fetch() (read int, replaced bool, err error) {
	last := c.revision.Load()
	page, err := c.changes(last)
	if err != nil {
		return 0, false, err
	}
	unsure := c.syncedAt.Load() == unsynced || page.Generation != c.generation || page.Revision < last || page.Incomplete
	if unsure && last > 0 {
		if page, err = c.changes(0); err != nil {
			return 0, false, err
		}
	}
	var present map[string]bool
	if unsure {
		present = make(map[string]bool)
	}
	for {
		for i := range page.Nodes {
			c.take(&page.Nodes[i], present)
		}
		read += len(page.Nodes)
		if !page.More {
			break
		}
		generation := page.Generation
		if page, err = c.changes(page.Next); err != nil {
			return read, false, err
		}
		if page.Generation != generation {
			// The counter was lost while we read: begin again.
			return c.fetch()
		}
	}
	if unsure {
		c.sweep(present)
		c.generation = page.Generation
	}
	c.revision.Store(page.Next)
	return read, unsure, nil
}

func (c *Cache) changes(since cell.Revision) (cell.Changes, error) {
	// The earlier end of the call, so that an error in the offset makes nodes look
	// silent sooner, never later.
	begin := c.Now()
	page, err := c.source.Changes(c.ctx, since, c.cfg.RefreshSize)
	if err == nil {
		c.clockOffset = begin - page.NowMS*int64(time.Millisecond)
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
