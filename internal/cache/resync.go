package cache

import (
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"
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
			f.refusal.Store(refusalOf(err))
			f.outage.Failed(err, zap.String("why", why))
		}
		// Soon at first: what failed may have been one connection. Then more and more
		// seldom, up to the interval.
		f.hasten(min(calm<<min(f.failures, 10), f.cache.cfg.RefreshInterval))
		f.failures++
		return false
	}
	f.failures = 0
	f.refusal.Store(nil)
	f.syncedAt.Store(f.cache.clock.now())
	f.cache.failing.And(^f.mask())
	f.outage.Over()
	f.cache.metrics.resyncNodes.Observe(float64(read))
	if replaced {
		f.log.Info("cache.replaced", zap.String("why", why), zap.Int("nodes", read),
			zap.Uint64("revision", f.revision.Load()), zap.Duration("took", time.Since(begin)))
	}
	return true
}

// refusalOf is the word with which an answer of Redis begins that is an error, such as WRONGPASS; nil for none. What
// follows it may name keys and users, which are not for everybody who asks for the replica's health.
func refusalOf(err error) *string {
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) {
		return nil
	}
	word, _, _ := strings.Cut(answer.Error(), " ")
	if word == "" || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		word = "ERR" // which the client library leaves out
	}
	return &word
}

// maxPage is what the pages of a load grow to: Redis serves nobody else while it
// reads one, for about 6 us a node.
const maxPage = 500

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
// It reads up to the revision that the cell had when it began, or else a busy fleet
// would keep it for ever. Nodes that change meanwhile escape to behind that; they are
// read one by one, as the event of their next heartbeat says nothing of what was
// missed before.
func (f *follower) fetchOnce() (read int, replacing, again bool, err error) {
	// First, so that what is read is never of an older history than it is said to be.
	history, err := f.sameHistory()
	if err != nil {
		return 0, false, false, err
	}
	last, size := f.revision.Load(), f.cache.cfg.RefreshSize
	page, err := f.changes(last, size)
	if err != nil {
		return 0, false, false, err
	}
	replacing = f.stale || f.suspect || f.syncedAt.Load() == unsynced ||
		page.Generation != f.generation || page.Revision < last || page.Incomplete
	if replacing && last > 0 {
		if page, err = f.changes(0, size); err != nil {
			return 0, true, false, err
		}
	}
	present := make(map[string]bool, len(page.Nodes))
	first := page
	clear(f.ahead)
	for {
		last := !page.More || page.Next >= first.Revision
		var next <-chan answered
		if !last { // Redis and the decoder work while this page is taken in
			size = min(2*size, max(maxPage, f.cache.cfg.RefreshSize))
			next = f.ask(page.Next, size)
		}
		for i := range page.Nodes {
			f.take(&page.Nodes[i], present)
			if n := &page.Nodes[i]; n.Revision > first.Revision {
				f.ahead[n.Node.ID] = n.Revision
			}
		}
		read += len(page.Nodes)
		if last {
			break
		}
		if page, err = f.heard(<-next); err != nil {
			return read, replacing, false, err
		}
		if page.Generation != first.Generation || page.Incomplete && !replacing {
			return read, replacing, true, nil
		}
	}
	// What changed since comes once more. Not the revision of the last page: a node may
	// have left, and its tombstone been dropped, after its own page was read.
	if replacing || page.More {
		swept, err := f.sweep(present, first.Revision)
		if read += swept; err != nil {
			return read, replacing, false, err
		}
	}
	f.revision.Store(min(page.Next, first.Revision))
	if f.escaped = 0; page.More {
		f.escaped = page.Revision
	}
	if replacing {
		f.generation, f.history = page.Generation, history
		f.suspect, f.stale = false, false
	}
	return read, replacing, false, nil
}

// sameHistory compares the server's history with that of the nodes here. After a
// failover the subscription, the tracker and the commands can reach the new server at
// different times, so it is asked for at each comparison. A suspicion ends where the
// server is the one of before and was not restarted: the revisions that were missed
// are all that was missed. It returns the history, to be remembered by a replacing load.
func (f *follower) sameHistory() (string, error) {
	history, err := f.source.History(f.cache.ctx)
	if err == nil && history != "" && f.syncedAt.Load() != unsynced {
		f.suspect = history != f.history
	}
	return history, err
}

// answered is a page and when it was asked for.
type answered struct {
	page  cell.Changes
	err   error
	begin int64
}

// ask reads a page. The answer is to be taken from the channel: that is the end of
// the goroutine.
func (f *follower) ask(since cell.Revision, size int) <-chan answered {
	answer := make(chan answered)
	go func() {
		a := answered{begin: f.cache.clock.now()}
		a.page, a.err = f.source.Changes(f.cache.ctx, since, size)
		answer <- a
	}()
	return answer
}

func (f *follower) changes(since cell.Revision, size int) (cell.Changes, error) {
	return f.heard(<-f.ask(since, size))
}

func (f *follower) heard(a answered) (cell.Changes, error) {
	if a.err == nil {
		// By the earlier end of the call, so that an error in the offset makes nodes look
		// silent sooner, never later.
		f.clockOffset = a.begin - a.page.NowMS*int64(time.Millisecond)
	}
	return a.page, a.err
}

func (f *follower) take(state *cell.NodeState, present map[string]bool) {
	if state.Gone {
		f.remove(state.Node.ID)
		delete(present, state.Node.ID)
		return
	}
	f.put(state)
	present[state.Node.ID] = true
}

// sweep looks at the nodes that a load did not bring. After a replacing one they are
// gone, after any they may have changed while it was read and so moved behind its
// end, which is at revision. It returns how many it has read.
func (f *follower) sweep(present map[string]bool, revision cell.Revision) (read int, err error) {
	var missing []string
	f.cache.nodes.Range(func(id string, e *entry) bool {
		if !present[id] && e.node.Cell() == f.index {
			missing = append(missing, id)
		}
		return true
	})
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
