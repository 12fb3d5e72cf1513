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
func (f *follower) resync(why string) bool {
	begin := time.Now()
	read, replaced, err := f.fetch()
	if err != nil {
		if f.cache.ctx.Err() == nil {
			f.cache.failing.Or(f.mask())
			f.cache.metrics.resyncErrors.Inc()
			f.log.Warn("cache.resync_failed", zap.String("why", why), zap.Error(err))
		}
		// Soon at first: what failed may have been one connection. Then more and more
		// seldom, up to the interval.
		f.hasten(min(calm<<min(f.failures, 10), f.cache.cfg.RefreshInterval))
		f.failures++
		return false
	}
	f.failures = 0
	f.syncedAt.Store(f.cache.clock.now())
	f.cache.failing.And(^f.mask())
	f.cache.metrics.resyncNodes.Observe(float64(read))
	if replaced {
		f.log.Info("cache.replaced", zap.String("why", why), zap.Int("nodes", read),
			zap.Uint64("revision", f.revision.Load()), zap.Duration("took", time.Since(begin)))
	}
	return true
}

// fetchTries bounds how often one comparison begins again.
const fetchTries = 3

var errTooFast = errors.New("nodes leave faster than they can be read")

func (f *follower) fetch() (read int, replaced bool, err error) {
	for range fetchTries {
		n, replacing, again, err := f.fetchOnce()
		read += n
		if err != nil || !again {
			return read, replacing, err
		}
	}
	return read, false, errTooFast
}

// fetchOnce asks to be called again when what it has read lost its meaning on the
// way: the counter is another one, or tombstones were dropped before they were read.
func (f *follower) fetchOnce() (read int, replacing, again bool, err error) {
	// First, so that what is read is never of an older history than it is said to be.
	history, err := f.sameHistory()
	if err != nil {
		return 0, false, false, err
	}
	last := f.revision.Load()
	page, err := f.changes(last)
	if err != nil {
		return 0, false, false, err
	}
	replacing = f.stale || f.suspect || f.syncedAt.Load() == unsynced ||
		page.Generation != f.generation || page.Revision < last || page.Incomplete
	if replacing && last > 0 {
		if page, err = f.changes(0); err != nil {
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
			f.take(&page.Nodes[i], present)
		}
		read += len(page.Nodes)
		if !page.More {
			break
		}
		if page, err = f.changes(page.Next); err != nil {
			return read, replacing, false, err
		}
		if page.Generation != first.Generation || page.Incomplete && !replacing {
			return read, replacing, true, nil
		}
	}
	if replacing {
		if again, err = f.leftUnseen(&first, &page); again || err != nil {
			return read, true, again, err
		}
		f.sweep(present)
		f.generation, f.history = page.Generation, history
		f.suspect, f.stale = false, false
	}
	f.revision.Store(page.Next)
	clear(f.ahead)
	return read, replacing, false, nil
}

// sameHistory settles a suspicion: where the server is the one of before, and was not
// restarted, the revisions that were missed are all that was missed. It returns the
// server's history, to be remembered by a replacing load.
func (f *follower) sameHistory() (string, error) {
	if !f.suspect && f.syncedAt.Load() != unsynced {
		return f.history, nil
	}
	history, err := f.source.History(f.cache.ctx)
	if err == nil && history != "" && history == f.history {
		f.suspect = false
	}
	return history, err
}

// leftUnseen reports whether a node may have left, and its tombstone been dropped,
// between the first and the last page of a replacing load. Incomplete of the pages
// between says nothing here: they ask from revisions of long ago.
func (f *follower) leftUnseen(first, last *cell.Changes) (bool, error) {
	if first.Revision == last.Revision {
		return false, nil
	}
	page, err := f.changes(first.Revision)
	return page.Incomplete || page.Generation != first.Generation, err
}

func (f *follower) changes(since cell.Revision) (cell.Changes, error) {
	// The earlier end of the call, so that an error in the offset makes nodes look
	// silent sooner, never later.
	begin := f.cache.clock.now()
	page, err := f.source.Changes(f.cache.ctx, since, f.cache.cfg.RefreshSize)
	if err == nil {
		f.clockOffset = begin - page.NowMS*int64(time.Millisecond)
	}
	return page, err
}

func (f *follower) take(state *cell.NodeState, present map[string]bool) {
	if state.Gone {
		f.remove(state.Node.ID)
		delete(present, state.Node.ID)
		return
	}
	f.put(state)
	if present != nil {
		present[state.Node.ID] = true
	}
}

// sweep removes what a replacing load did not bring; remove spares the nodes of other cells.
func (f *follower) sweep(present map[string]bool) {
	f.cache.nodes.Range(func(id string, _ *entry) bool {
		if !present[id] {
			f.remove(id)
		}
		return true
	})
}
