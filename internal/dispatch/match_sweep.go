package dispatch

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
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
)

// sweepQueues is the loop that reads the queues and offers free nodes to them, at each interval and
// when woken. No matter which events were lost, no fitting slot stays free beside a waiting job for
// longer.
func (c *client) sweepQueues() {
	c.tick(c.d.cfg.SweepInterval, c.match.wake, func() {
		for more := true; more; {
			begun := c.match.begun.Load()
			more = c.sweep() && sleep(c.d.ctx, sweepRest) && c.match.begun.Load() != begun
		}
		sleep(c.d.ctx, sweepRest)
	})
}

// sweep returns true if there were more free nodes than it looked for.
func (c *client) sweep() (more bool) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	err := c.announceConfig(ctx)
	if err == nil {
		err = c.readQueues(ctx)
	}
	if !c.succeeded(c.sweeping, err) {
		return false
	}
	c.forgetNoJobs()
	probes := sweepProbes
	c.queues.byID.Range(func(_ string, q *queue) bool {
		more = c.offerNodes(q, &probes) || more
		return true
	})
	return more
}

// offerNodes offers free nodes to the jobs of a queue. It also offers nodes that seem full, as long
// as probes is above 0. It returns true if there are more free ones.
func (c *client) offerNodes(q *queue, probes *int) (more bool) {
	class := c.d.nodes.Class(q.job.Service, &q.job.Requirement)
	if class.Paused() != "" {
		return false
	}
	var room [sweepNodes]*selection.Node
	query := selection.Query{
		Want: sweepNodes, Samples: selection.MaxSamples,
		Now: c.d.nodes.Now(), SilenceLimit: c.d.nodes.SilenceLimit(), Skip: selection.Only(c.cell.Index()),
	}
	source := selection.NewSource(rand.Uint64())
	// It is not known here how many slots the jobs need, so nodes with room for one, two, four and
	// more slots are sought.
	for query.Slots = 1; query.Slots <= max(class.MaxSlots(), 1); query.Slots *= 2 {
		offered := 0
		for _, n := range class.Choose(room[:0], &query, source) {
			if !c.leftToFirst(n) {
				c.offer(n, false)
				offered++
			}
		}
		more = more || offered == sweepNodes
	}
	if *probes > 0 {
		query.Slots, query.IgnoreFull, query.Samples = 1, true, 1
		query.Want = min(*probes, max(1, sweepProbes/max(1, c.queues.byID.Size())))
		for _, n := range class.Choose(room[:0], &query, source) {
			*probes--
			c.offer(n, true)
		}
	}
	return more
}

// offerFreeNode looks in the cache for a node with room for a waiting job that was offered to no
// node that seemed free. A node that became free during the call found no waiting job. The look is
// pointless if cell.MaxCandidates jobs wait in front: they get these nodes first.
func (c *client) offerFreeNode(p *placement, position int) {
	q := &p.query
	if len(p.candidates) > 0 && !q.IgnoreFull || position > cell.MaxCandidates {
		return
	}
	q.Now, q.Skip, q.IgnoreFull, q.Want = c.d.nodes.Now(), selection.Only(c.cell.Index()), false, 1
	if c.d.draw(p); len(p.candidates) > 0 {
		c.offer(p.candidates[0], false)
	}
}

// leftToFirst reports whether a node that got no job a moment ago is left to the replica that goes
// first for it.
func (c *client) leftToFirst(n *selection.Node) bool {
	v, known := c.match.noJobs.Load(n.ID())
	used, _ := n.Load()
	return known && v.used == used && c.d.nodes.Now()-v.at < int64(noJobRest) && !c.d.goesFirst(n.ID())
}

func (c *client) forgetNoJobs() {
	earliest := c.d.nodes.Now() - int64(noJobRest)
	c.match.noJobs.Range(func(id string, v noJob) bool {
		if v.at < earliest {
			c.match.noJobs.Delete(id)
		}
		return true
	})
}
