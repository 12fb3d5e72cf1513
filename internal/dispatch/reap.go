package dispatch

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// Reaping pauses when more than this share of at least this many nodes is silent: it
	// is likelier then that heartbeats do not get through than that all these nodes died.
	pausePercent = 30
	pauseFewest  = 10
	// For how many heartbeat limits at most, and one more for those that come back last; and how many in all, where
	// waves of them follow each other. Time without touch to Redis does not count.
	pauseLimits     = 2
	pauseMostLimits = 2 * pauseLimits
	reapsPerLimit   = 16
	reapMaxInterval = time.Second
	// reapMost is how many nodes one round takes out.
	reapMost = 256
)

// reaper is what the loop that takes silent nodes out of a cell remembers.
type reaper struct {
	// spareSince is when too many nodes were found silent at once, on the clock of
	// Nodes.Now; spares is false while they are not.
	pausedAt   int64
	paused     bool
	manyAt     int64 // when they were too many last
	wavesSince int64 // when they were for the first time; spareSince begins anew with each wave
	expired    bool  // the pause has lasted as long as it may
	// watched is when a round last went ahead, because there had been touch for long enough; away is true while none does.
	ranAt int64
	blind bool
	// alive is when Redis last said of a node that seems silent that it is not to be taken
	// out: events are missed here, and it is not asked again at once.
	alive map[string]int64
}

// reapNodes takes silent nodes out of the cell: their jobs go to their next attempts.
// Every replica does; Redis decides by its own clock, and once.
func (c *client) reapNodes() {
	interval := min(c.d.nodes.SilenceLimit()/reapsPerLimit, reapMaxInterval)
	c.tick(max(interval, time.Millisecond), nil, c.reap)
}

// reap is one round.
func (c *client) reap() {
	limit := c.d.nodes.SilenceLimit()
	now := c.d.nodes.Now()
	// While Redis was away nobody could say that it lives. All have had the time to since.
	if c.contact.lasts(now) < limit {
		c.reaper.blind = true
		// Short of a limit without touch, and one with it. After more, what was found before says nothing of now.
		if now-c.reaper.ranAt >= 2*int64(limit) {
			c.forgetPause()
		}
		return
	}
	c.reaper.resume(now)
	all := c.d.nodes.Silent(limit)
	silent := make([]cache.SilentNode, 0, len(all))
	for _, n := range all {
		if n.Cell == c.cell.Index() {
			silent = append(silent, n)
		}
	}
	if c.pauseReaping(now, limit, len(silent), len(all)) {
		return
	}
	silent = c.reaper.suspects(silent, now, limit)
	// So that replicas that begin together do not go the same way.
	rand.Shuffle(len(silent), func(i, j int) { silent[i], silent[j] = silent[j], silent[i] })
	for _, n := range silent[:min(len(silent), reapMost)] {
		if !c.reapNode(n) {
			return
		}
	}
}

// watches has a pause go on where it was when rounds last went ahead: were it forgotten, or begun anew, by each call
// that fails, dead nodes could stay for ever; did it run meanwhile, nobody would have had its time to be heard again.
func (r *reaper) resume(now int64) {
	if r.blind {
		gap := now - r.ranAt
		r.pausedAt, r.manyAt, r.wavesSince = r.pausedAt+gap, r.manyAt+gap, r.wavesSince+gap
	}
	r.ranAt, r.blind = now, false
}

// doubtful leaves out nodes of which Redis has just said that they live, and forgets those
// that are silent no longer.
func (r *reaper) suspects(silent []cache.SilentNode, now int64, limit time.Duration) (out []cache.SilentNode) {
	alive := make(map[string]int64)
	for _, n := range silent {
		if at, known := r.alive[n.ID]; known && now-at < int64(limit/2) {
			alive[n.ID] = at
		} else {
			out = append(out, n)
		}
	}
	r.alive = alive
	return out
}

// reapNode returns false when the cell did not answer.
func (c *client) reapNode(n cache.SilentNode) bool {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	reaped, err := c.cell.Reap(ctx, n.ID, n.Epoch)
	if err != nil {
		if c.d.ctx.Err() == nil {
			c.reaping.Failed(err)
		}
		return false
	}
	c.reaping.Over()
	if !reaped.Gone {
		c.reaper.alive[n.ID] = c.d.nodes.Now()
	} else {
		c.metrics.reaped.Inc()
		c.log.Warn("node.reaped", zap.String("node", n.ID), zap.Int("jobs", len(reaped.Jobs)))
		if len(reaped.Jobs) > 0 {
			c.wakeSweep()
		}
	}
	return true
}

// spare reports whether silent nodes are to be left alone. They are counted in the cell
// and in the whole fleet, because the cells can be small.
func (c *client) pauseReaping(now int64, limit time.Duration, here, everywhere int) bool {
	r := &c.reaper
	many := false
	if here > 0 {
		inFleet, inCell := c.countAgents()
		many = tooMany(everywhere, inFleet) || tooMany(here, inCell)
	}
	if many {
		r.manyAt = now
		if !r.paused {
			r.wavesSince = now
		}
	}
	// What kept so many away is over for all at once, but some take longer than others to be heard again.
	inTime := now-r.wavesSince < int64(pauseMostLimits*limit)
	returning := here > 0 && now-r.manyAt < int64(limit) && inTime
	switch {
	case !many && r.paused && !r.expired && returning:
		r.pausedAt = now // more of them that fall silent now do so for another reason
	case !many:
		if r.paused && !r.expired {
			c.metrics.reapingPaused.Set(0)
			c.log.Info("nodes.reaping_resumed", zap.Int("silent", here))
		}
		r.paused, r.expired = false, false
	case !r.paused:
		r.paused, r.expired, r.pausedAt = true, false, now
		c.metrics.reapingPaused.Set(1)
		c.log.Warn("nodes.reaping_paused", zap.Int("silent", here), zap.Duration("at_most", pauseMostLimits*limit))
	case !r.expired && (now-r.pausedAt >= int64(pauseLimits*limit) || !inTime):
		r.expired = true
		c.metrics.reapingPaused.Set(0)
		c.log.Warn("nodes.reaping_resumed", zap.Int("silent", here))
	}
	return r.paused && !r.expired
}

// spoken counts the nodes that have an agent, in the fleet and in the cell: those that were imported never spoke.
func (c *client) countAgents() (inFleet, inCell int) {
	for _, node := range c.d.nodes.AllNodes() {
		if c.d.nodes.Epoch(node.ID()) == cell.ImportEpoch {
			continue
		}
		inFleet++
		if node.Cell() == c.cell.Index() {
			inCell++
		}
	}
	return inFleet, inCell
}

// spareAnew forgets a pause.
func (c *client) forgetPause() {
	if c.reaper.paused && !c.reaper.expired {
		c.metrics.reapingPaused.Set(0)
	}
	c.reaper.paused, c.reaper.expired = false, false
}

func tooMany(silent, nodes int) bool {
	return nodes >= pauseFewest && silent*100 > nodes*pausePercent
}
