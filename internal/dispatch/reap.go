package dispatch

import (
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	reapsPerLimit   = 16
	reapMaxInterval = time.Second
	// reapMost is the most nodes that one round takes out.
	reapMost = 256
)

// reaper is the loop that suggests silent nodes of the cell for reaping. Their jobs go to their
// next attempts. Every replica runs it; Redis decides by its own clock, once for each node.
type reaper struct {
	*cellClient
	outage *logging.Outage
	pause  reapPause
	// ranAt is the time at which a round last went ahead, because contact had lasted long enough.
	// blind is true while no round does.
	ranAt int64
	blind bool
	// alive holds the time at which Redis last said that a node lives which seems silent here. This
	// replica misses its events, and does not suggest it again at once.
	alive map[string]int64
}

func newReaper(c *cellClient) *reaper {
	return &reaper{cellClient: c, outage: logging.NewOutage(c.log, "nodes.reap_failed", "nodes.reaped_again")}
}

func (r *reaper) run() {
	interval := min(r.d.nodes.SilenceLimit()/reapsPerLimit, reapMaxInterval)
	r.d.tick(max(interval, time.Millisecond), nil, r.runOnce)
}

func (r *reaper) runOnce() {
	limit := r.d.nodes.SilenceLimit()
	now := r.d.nodes.Now()
	// While Redis was away no node could prove that it lives. After contact for one limit all
	// could.
	if r.contact.lasts(now, r.contactGap()) < limit {
		r.blind = true
		// Two limits are almost one without contact, and one with it. After more than that, earlier
		// findings mean nothing.
		if now-r.ranAt >= 2*int64(limit) {
			r.forgetPause()
		}
		return
	}
	r.resume(now)
	all := r.d.nodes.Silent(limit)
	silent := make([]cache.SilentNode, 0, len(all))
	for _, n := range all {
		if n.Cell == r.cell.Index() {
			silent = append(silent, n)
		}
	}
	if r.pauseReaping(now, limit, len(silent), len(all)) {
		return
	}
	silent = r.suspects(silent, now, limit)
	// Replicas that begin together must not use the same order.
	rand.Shuffle(len(silent), func(i, j int) { silent[i], silent[j] = silent[j], silent[i] })
	for _, n := range silent[:min(len(silent), reapMost)] {
		if !r.reapNode(n) {
			return
		}
	}
}

// resume shifts a pause by the time in which no round went ahead. If each failed call ended or
// restarted the pause, dead nodes could stay for ever. If the pause ran on meanwhile, nodes would
// not get their time to be heard again.
func (r *reaper) resume(now int64) {
	if r.blind {
		gap := now - r.ranAt
		r.pause.since, r.pause.manyAt, r.pause.wavesSince = r.pause.since+gap, r.pause.manyAt+gap, r.pause.wavesSince+gap
	}
	r.ranAt, r.blind = now, false
}

// suspects returns the silent nodes except those that Redis just reported alive. It forgets nodes
// that are no longer silent.
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

// reapNode suggests one node for reaping. It returns false if the cell did not answer.
func (r *reaper) reapNode(n cache.SilentNode) bool {
	ctx, cancel := r.d.timeout()
	defer cancel()
	reaped, err := r.cell.Reap(ctx, n.ID, n.Epoch)
	if !r.succeeded(r.outage, err) {
		return false
	}
	if !reaped.Gone {
		r.alive[n.ID] = r.d.nodes.Now()
		return true
	}
	r.metrics.reaped.Inc()
	r.log.Warn("node.reaped", zap.String("node", n.ID), zap.Int("jobs", len(reaped.Jobs)))
	if len(reaped.Jobs) > 0 {
		r.wakeSweep()
	}
	return true
}

const (
	// Reaping pauses if more than pausePercent of at least pauseFewest nodes are silent. Then
	// heartbeats probably do not get through; it is unlikely that all these nodes died.
	pausePercent = 30
	pauseFewest  = 10
	// A pause lasts at most pauseLimits heartbeat limits, and one more for the nodes that return
	// last. If waves of silent nodes follow each other, all pauses together last pauseMostLimits.
	// Time without contact to Redis does not count.
	pauseLimits     = 2
	pauseMostLimits = 2 * pauseLimits
)

// reapPause keeps live nodes from being reaped while too many are silent at the same time. Times
// are by the clock of Nodes.Now.
type reapPause struct {
	on, expired bool // expired: it has lasted as long as it may
	since       int64
	manyAt      int64 // when too many nodes were last silent
	wavesSince  int64 // when they were for the first time; since restarts with each wave
}

// pauseReaping reports whether silent nodes are left alone. It counts them in the cell and in the
// fleet, because cells can be small.
func (r *reaper) pauseReaping(now int64, limit time.Duration, here, everywhere int) bool {
	p := &r.pause
	many := false
	if here > 0 {
		inFleet, inCell := r.countAgents()
		many = tooMany(everywhere, inFleet) || tooMany(here, inCell)
	}
	if many {
		p.manyAt = now
		if !p.on {
			p.wavesSince = now
		}
	}
	// The cause ends for all nodes at the same time, but some take longer than others to be heard
	// again.
	inTime := now-p.wavesSince < int64(pauseMostLimits*limit)
	returning := here > 0 && now-p.manyAt < int64(limit) && inTime
	switch {
	case !many && p.on && !p.expired && returning:
		p.since = now // a later wave has another cause
	case !many:
		if p.on && !p.expired {
			r.metrics.reapingPaused.Set(0)
			r.log.Info("nodes.reaping_resumed", zap.Int("silent", here))
		}
		p.on, p.expired = false, false
	case !p.on:
		p.on, p.expired, p.since = true, false, now
		r.metrics.reapingPaused.Set(1)
		r.log.Warn("nodes.reaping_paused", zap.Int("silent", here), zap.Duration("at_most", pauseMostLimits*limit))
	case !p.expired && (now-p.since >= int64(pauseLimits*limit) || !inTime):
		p.expired = true
		r.metrics.reapingPaused.Set(0)
		r.log.Warn("nodes.reaping_resumed", zap.Int("silent", here))
	}
	r.d.reapingPaused.set(r.cell.Index(), p.on && !p.expired)
	return p.on && !p.expired
}

// ReapingPaused reports whether silent nodes keep their jobs for now in some cell, because too many
// are silent at the same time.
func (d *Dispatcher) ReapingPaused() bool { return d.reapingPaused.load() != 0 }

// countAgents counts the nodes that have an agent, in the fleet and in the cell. Imported nodes
// never had one.
func (r *reaper) countAgents() (inFleet, inCell int) {
	for _, node := range r.d.nodes.AllNodes() {
		if r.d.nodes.Epoch(node.ID()) == cell.ImportEpoch {
			continue
		}
		inFleet++
		if node.Cell() == r.cell.Index() {
			inCell++
		}
	}
	return inFleet, inCell
}

func (r *reaper) forgetPause() {
	r.metrics.reapingPaused.Set(0)
	r.pause.on, r.pause.expired = false, false
}

func tooMany(silent, nodes int) bool {
	return nodes >= pauseFewest && silent*100 > nodes*pausePercent
}
