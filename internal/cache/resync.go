package cache

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/follow"
)

// resync applies the queued events and compares at once. If it returns true, the cache has all
// changes from before the call.
func (f *follower) resync(why string) bool {
	f.applyQueued()
	f.awaited = atOnce
	return f.compare(why)
}

// compare compares the cache with Redis. If events have come as far as awaited, it only records the
// revision to await next, because the events of later changes are on their way. Otherwise it reads
// the changes since the last revision, or everything if the counter is a new one. It returns false
// if Redis did not answer: the cache then stays as it is, and the next comparison is soon.
func (f *follower) compare(why string) bool {
	begin := time.Now()
	read, replaced, err := f.fetch()
	if err != nil {
		if f.cache.ctx.Err() == nil {
			f.cache.failing.Or(f.mask())
			f.cache.metrics.resyncErrors.Inc()
			f.refusal.Store(refusalOf(err))
			f.outage.Failed(err, zap.String("why", why))
			f.outages.begin(f.cache.clock.now())
		}
		// Soon at first, because perhaps only one connection failed. Then less often, down to once
		// an interval.
		f.hasten(follow.Backoff(calm, f.cache.cfg.RefreshInterval, f.failures))
		f.failures++
		return false
	}
	f.failures = 0
	f.refusal.Store(nil)
	f.syncedAt.Store(f.cache.clock.now())
	f.cache.failing.And(^f.mask())
	f.outage.Over()
	f.outages.end(f.cache.clock.now())
	f.cache.metrics.resyncNodes.Observe(float64(read))
	if replaced {
		f.log.Info("cache.replaced", zap.String("why", why), zap.Int("nodes", read),
			zap.Uint64("revision", f.revision.Load()), zap.Duration("took", time.Since(begin)))
	}
	return true
}

// refusalOf returns the first word of an error in an answer of Redis, such as WRONGPASS; nil for
// other errors. The rest of the answer can name keys and users, and the replica's health is public.
func refusalOf(err error) *string {
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) {
		return nil
	}
	word, _, _ := strings.Cut(answer.Error(), " ")
	if word == "" || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		word = "ERR" // the client library leaves it out
	}
	return &word
}

const (
	// maxPage is the size up to which the pages of a load grow: Redis serves no other client while
	// it reads one, for about 6 us a node.
	maxPage = 500
	// fetchTries bounds how often one comparison starts over.
	fetchTries = 3
)

var errTooFast = errors.New("nodes leave faster than they can be read")

func (f *follower) fetch() (read int, replaced bool, err error) {
	for range fetchTries {
		n, replacing, restart, err := f.fetchOnce()
		read += n
		if err != nil || !restart {
			return read, replacing, err
		}
	}
	return read, false, errTooFast
}

// fetchOnce reads once. restart is true if its pages lost their meaning meanwhile: the counter is a
// new one, or tombstones were dropped before they were read.
func (f *follower) fetchOnce() (read int, replacing, restart bool, err error) {
	// This comes first, so that the nodes are never older than the history that is recorded for
	// them.
	history, err := f.sameHistory()
	if err != nil {
		return 0, false, false, err
	}
	last, size, patient := f.revision.Load(), f.cache.cfg.RefreshSize, f.patient()
	if patient {
		size = 1 // only the cell's revision is needed
	}
	page, err := f.changes(last, size)
	if err != nil {
		return 0, false, false, err
	}
	replacing = f.stale || f.suspect || f.syncedAt.Load() == unsynced ||
		page.Generation != f.generation || page.Revision < last
	if patient && !replacing { // a dropped tombstone has an event, too
		f.settle(last, page.Revision)
		return 0, false, false, nil
	}
	if replacing = replacing || page.Incomplete; replacing && last > 0 {
		if page, err = f.changes(0, f.cache.cfg.RefreshSize); err != nil {
			return 0, true, false, err
		}
	}
	f.noteBeginning(&page)
	if read, restart, err = f.load(page, replacing); err == nil && !restart && replacing {
		f.generation, f.history = page.Generation, history
		f.suspect, f.stale = false, false
	}
	return read, replacing, restart, err
}

// load reads the pages of a load; page is the first.
//
// A delta continues past the revision at which it began, until nothing is left: less than a page
// changes while it reads a page. Two kinds of load end at that revision instead. A load of
// everything does, because pages from 0 do not show which tombstones were dropped meanwhile. So
// does a delta of a fleet that changes faster than it can be read. Nodes that change meanwhile
// escape such a load. They are read one by one, because the event of their next heartbeat does not
// bring what was missed.
func (f *follower) load(page cell.Changes, replacing bool) (read int, restart bool, err error) {
	first, size := page, f.cache.cfg.RefreshSize
	present := make(map[string]bool, len(page.Nodes))
	clear(f.ahead)
	for {
		for i := range page.Nodes {
			f.take(&page.Nodes[i], present)
			if n := &page.Nodes[i]; n.Revision > first.Revision {
				f.ahead[n.Node.ID] = n.Revision
			}
		}
		read += len(page.Nodes)
		// A sweep costs less than reading twice as many nodes as exist.
		tooFast := read > 2*f.cache.nodes.Size()
		if !page.More || page.Next >= first.Revision && (replacing || tooFast) {
			break
		}
		size = min(2*size, max(maxPage, f.cache.cfg.RefreshSize))
		if page, err = f.changes(page.Next, size); err != nil {
			return read, false, err
		}
		if page.Generation != first.Generation || page.Incomplete && !replacing {
			return read, true, nil
		}
	}
	end := page.Next
	if replacing || page.More {
		// Not at the revision of the last page: a node may have left, and its tombstone been
		// dropped, after its own page was read.
		end = first.Revision
		swept, err := f.sweep(present, end)
		if read += swept; err != nil {
			return read, false, err
		}
	}
	if f.escaped = 0; page.More {
		f.escaped = page.Revision
	}
	f.settle(end, end)
	return read, false, nil
}

// patient reports whether a comparison may wait for events: they have come as far as awaited, and
// keep coming.
func (f *follower) patient() bool {
	return f.events != nil && f.events.Subscribed() && f.revision.Load() >= f.awaited
}

// settle records the revision of the nodes, and the one to await. It forgets a node that was read
// ahead once the events of others are past it: a node that has left gets no later event.
func (f *follower) settle(at, awaited cell.Revision) {
	f.revision.Store(at)
	f.awaited = awaited
	maps.DeleteFunc(f.ahead, func(_ string, revision cell.Revision) bool { return revision <= at })
}

// noteBeginning records the time since which the cell has its records. Call it before the nodes
// that a load does not find are forgotten.
func (f *follower) noteBeginning(page *cell.Changes) {
	loaded := f.syncedAt.Load() != unsynced
	switch {
	case loaded && page.Generation == f.generation:
	case page.GenerationAtMS > 0:
		f.beganAt.Store(f.localNow(page.GenerationAtMS))
	case loaded || page.Generation == "":
		// There is no counter, or an older release began it and did not record when.
		f.beganAt.Store(f.cache.clock.now())
	}
}

// sameHistory compares the server's history with the history that the nodes come from. After a
// failover the subscription, the tracker and the commands can reach the new server at different
// times, so each comparison asks for it. If the history is the same, the missed revisions are all
// that was missed, and suspect ends. It returns the history, which a load of everything records.
func (f *follower) sameHistory() (string, error) {
	history, err := f.source.History(f.cache.ctx)
	if err == nil && history != "" && f.syncedAt.Load() != unsynced {
		f.suspect = history != f.history
	}
	return history, err
}

// changes reads a page and measures the clocks' offset.
func (f *follower) changes(since cell.Revision, size int) (cell.Changes, error) {
	begin := f.cache.clock.now()
	page, err := f.source.Changes(f.cache.ctx, since, size)
	if err == nil {
		// Measured from the beginning of the call, so that an error in the offset makes nodes look
		// silent sooner, never later.
		f.clockOffset = begin - page.NowMS*int64(time.Millisecond)
	}
	return page, err
}

func (f *follower) take(state *cell.NodeState, present map[string]bool) {
	if state.Gone {
		f.gone(state)
		delete(present, state.Node.ID)
		return
	}
	f.put(state)
	present[state.Node.ID] = true
}

// sweep reads the nodes that a load did not bring. After a load of everything they are gone. After
// any load they may have changed meanwhile, and so moved behind its end, which is at revision. It
// returns how many nodes it has read.
func (f *follower) sweep(present map[string]bool, revision cell.Revision) (read int, err error) {
	var missing []string
	for id, e := range f.cache.nodes.Range {
		if !present[id] && e.node.Cell() == f.index {
			missing = append(missing, id)
		}
	}
	for len(missing) > 0 {
		n := min(len(missing), f.cache.cfg.RefreshSize)
		page, err := f.source.Nodes(f.cache.ctx, missing[:n])
		if err != nil {
			return read, err
		}
		for i := range page.Nodes {
			f.takeAhead(&page.Nodes[i], page.Revision, revision)
		}
		read += n
		missing = missing[n:]
	}
	return read, nil
}
