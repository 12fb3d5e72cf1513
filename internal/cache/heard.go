package cache

import (
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// heardEvery is the most time between two reads of quiet heartbeats, the calls' own aside.
	heardEvery = 1250 * time.Millisecond
	// heardPage is how many heartbeats one call reads, and heardPages how many calls follow each
	// other before events have their turn.
	heardPage, heardPages = 5000, 20
	// permitLife is how long AllowQuiet counts: longer than the time between two answers of package
	// presence.
	permitLife = 3 * time.Second
	// strangerWait is how long, by Redis' clock, a heartbeat waits for the event of its node's
	// registration.
	strangerWait = 2000
)

// permit is the last answer to whether heartbeats may be quiet.
type permit struct {
	allowed atomic.Bool
	at      atomic.Int64 // by the cache's clock; 0 before the first answer
}

// AllowQuiet says whether all replicas that run read quiet heartbeats. It counts for three seconds.
// Without it the cache leaves to other replicas whether agents publish every heartbeat.
func (c *Cache) AllowQuiet(allowed bool) {
	c.quiet.allowed.Store(allowed)
	c.quiet.at.Store(c.clock.now())
}

func (c *Cache) quietNow() cell.Quiet {
	at := c.quiet.at.Load()
	switch {
	case at == 0 || c.clock.now()-at > int64(permitLife):
		return cell.QuietAsBefore
	case c.quiet.allowed.Load():
		return cell.QuietAllowed
	}
	return cell.QuietEnded
}

// hearing is what a follower knows of quiet heartbeats. Only its loop uses it.
type hearing struct {
	timer *time.Timer // fires when no comparison came in time
	every time.Duration
	// outage logs failed reads. Comparisons may succeed meanwhile.
	outage *logging.Outage
	// sinceMS is the time by Redis' clock from which on heartbeats are to be read.
	sinceMS int64
	// doubted holds, with their revisions then, the nodes whose figures did not go with a quiet
	// heartbeat.
	doubted map[string]cell.Revision
}

// listen reads the heartbeats that no event told of since the last read.
func (f *follower) listen() {
	h := &f.hearing
	h.timer.Reset(h.every)
	if f.failures > 0 || f.syncedAt.Load() == unsynced {
		return // a comparison is soon
	}
	f.askAgain()
	for range heardPages {
		begin := f.cache.clock.now()
		heard, err := f.source.Heard(f.cache.ctx, h.sinceMS, heardPage, f.cache.quietNow())
		if err != nil {
			if f.cache.ctx.Err() == nil {
				f.cache.metrics.resyncErrors.Inc()
				h.outage.Failed(err)
			}
			return // and goes on from there in the next read
		}
		h.outage.Over()
		f.clockOffset = begin - heard.NowMS*int64(time.Millisecond) // as in changes
		if heard.NowMS < h.sinceMS {
			f.turnBack(heard.NowMS)
			continue
		}
		last, stranger := f.hear(&heard)
		if heard.Len() == heardPage {
			h.sinceMS = max(last, h.sinceMS+1)
			continue
		}
		h.sinceMS = heard.NowMS
		if stranger > heard.NowMS-strangerWait {
			h.sinceMS = stranger
		}
		return
	}
}

// hear applies a page. It returns when the last heartbeat was, and when the first one of a node that
// the cache does not know yet (0: there is none).
func (f *follower) hear(heard *cell.Heard) (last, stranger int64) {
	for id, at := range heard.All() {
		last = at
		e, ok := f.cache.nodes.Load(id)
		if !ok && stranger == 0 {
			stranger = at
		}
		if !ok || e.node.Cell() != f.index {
			continue
		}
		if at <= e.heartbeatMS.Load() {
			continue
		}
		before := f.cache.takes(e.node)
		e.node.Seen(f.localNow(at))
		e.heartbeatMS.Store(at)
		used, _ := e.node.Load()
		if used != 0 || e.node.Draining() != e.drains {
			f.hearing.doubted[id] = e.revision.Load()
		}
		f.mirrorFigures(e, used, e.status())
		f.cache.freed(e.node, before)
	}
	f.cache.metrics.heard.Add(float64(heard.Len()))
	return last, stranger
}

// turnBack makes the heartbeats that come from now on count although Redis' clock went back, perhaps
// in a failover.
func (f *follower) turnBack(nowMS int64) {
	f.hearing.sinceMS = 0
	for _, e := range f.cache.nodes.Range {
		if e.node.Cell() == f.index && e.heartbeatMS.Load() > nowMS {
			e.heartbeatMS.Store(nowMS)
		}
	}
}

// askAgain reads the nodes again that have had no event since they were doubted. A node with a quiet
// heartbeat has no slot in use and its status is as announced. But the answer to a job or to a
// refusal may come after the event that makes it out of date, and no further event would mend that.
func (f *follower) askAgain() {
	for id, revision := range f.hearing.doubted {
		e, ok := f.cache.nodes.Load(id)
		if !ok || e.revision.Load() != revision {
			continue
		}
		if used, _ := e.node.Load(); used != 0 || e.node.Draining() != e.drains {
			f.readAgain(id)
		}
	}
	clear(f.hearing.doubted)
}
