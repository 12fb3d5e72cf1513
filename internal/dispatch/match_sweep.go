package dispatch

import (
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// sweepNodes is how many free nodes of a class one sweep looks for.
	sweepNodes = 64
	// sweepProbes is how many nodes that seem full one sweep offers: a late answer may have left a
	// wrong figure, which only the next heartbeat would correct.
	sweepProbes = 8
	// sweepRest is the least time between two sweeps. The next one comes that soon if jobs began
	// and more nodes are free.
	sweepRest = 20 * time.Millisecond
	// noJobRest is how long sweeps leave out a free node that got no job and has not changed since:
	// the waiting jobs need more slots. The replica that goes first for the node still offers it.
	noJobRest = 2 * time.Second
)

// sweeper is the loop that reads the queues and offers free nodes to them, at each interval and
// when woken. No matter which events were lost, no fitting slot stays free beside a waiting job for
// longer.
type sweeper struct {
	*cellClient
	outage *logging.Outage
}

func newSweeper(c *cellClient) *sweeper {
	return &sweeper{cellClient: c, outage: logging.NewOutage(c.log, "queues.sweep_failed", "queues.swept_again")}
}

func (s *sweeper) run() { s.d.tick(s.d.cfg.SweepInterval, s.sweeps, s.runOnce) }

func (s *sweeper) runOnce() {
	for more := true; more; {
		begun := s.free.begun.Load()
		more = s.sweep() && sleep(s.d.ctx, sweepRest) && s.free.begun.Load() != begun
	}
	sleep(s.d.ctx, sweepRest)
}

// sweep returns true if there were more free nodes than it looked for.
func (s *sweeper) sweep() (more bool) {
	ctx, cancel := s.d.timeout()
	defer cancel()
	err := s.announceConfig(ctx)
	if err == nil {
		err = s.queues.read(ctx, s.cell, s.d.nodes.Now(), s.sampled)
	}
	if !s.succeeded(s.outage, err) {
		return false
	}
	s.forgetNoJobs()
	probes := sweepProbes
	s.queues.byID.Range(func(_ string, q *queue) bool {
		more = s.offerNodes(q, &probes) || more
		return true
	})
	return more
}

// offerNodes offers free nodes to the jobs of a queue. It also offers nodes that seem full, as long
// as probes is above 0. It returns true if there are more free ones.
func (s *sweeper) offerNodes(q *queue, probes *int) (more bool) {
	class := s.d.nodes.Class(q.job.Service, &q.job.Requirement)
	if class.Paused() != "" {
		return false
	}
	var room [sweepNodes]*selection.Node
	query := selection.Query{
		Want: sweepNodes, Samples: selection.MaxSamples,
		Now: s.d.nodes.Now(), SilenceLimit: s.d.nodes.SilenceLimit(), Skip: selection.Only(s.cell.Index()),
	}
	source := selection.NewSource(rand.Uint64())
	// It is not known here how many slots the jobs need, so nodes with room for one, two, four and
	// more slots are sought.
	for query.Slots = 1; query.Slots <= max(class.MaxSlots(), 1); query.Slots *= 2 {
		offered := 0
		for _, n := range class.Choose(room[:0], &query, source) {
			if !s.leftToFirst(n) {
				s.free.offer(n, false)
				offered++
			}
		}
		more = more || offered == sweepNodes
	}
	if *probes > 0 {
		query.Slots, query.IgnoreFull, query.Samples = 1, true, 1
		query.Want = min(*probes, max(1, sweepProbes/max(1, s.queues.byID.Size())))
		for _, n := range class.Choose(room[:0], &query, source) {
			*probes--
			s.free.offer(n, true)
		}
	}
	return more
}

// leftToFirst reports whether a node that got no job a moment ago is left to the replica that goes
// first for it.
func (s *sweeper) leftToFirst(n *selection.Node) bool {
	v, known := s.free.noJobs.Load(n.ID())
	used, _ := n.Load()
	return known && v.used == used && s.d.nodes.Now()-v.at < int64(noJobRest) && !s.d.goesFirst(n.ID())
}

func (s *sweeper) forgetNoJobs() {
	earliest := s.d.nodes.Now() - int64(noJobRest)
	s.free.noJobs.Range(func(id string, v noJob) bool {
		if v.at < earliest {
			s.free.noJobs.Delete(id)
		}
		return true
	})
}
