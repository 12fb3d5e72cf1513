package dispatch

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// sweepNodes is how many free nodes of a class one sweep looks for.
	sweepNodes = 64
	// sweepProbes is how many nodes one sweep has asked that seem to be full: an answer that
	// was late may have left a wrong figure, which only the next heartbeat would mend.
	sweepProbes = 8
	// sweepRest is the least time between two sweeps, and when the next one comes where
	// jobs began and more nodes are free.
	sweepRest = 20 * time.Millisecond
)

// sweepQueues asks which classes have jobs that wait and offers free nodes to them, once
// an interval and when somebody says so. No slot that fits stays free beside a job that
// waits for longer than that, whichever news were lost.
func (c *client) sweepQueues() {
	c.tick(c.d.cfg.SweepInterval, c.match.wake, func() {
		for more := true; more; {
			begun := c.match.begun.Load()
			more = c.sweep() && c.rest(sweepRest) && c.match.begun.Load() != begun
		}
		c.rest(sweepRest)
	})
}

// rest waits, and returns false once the dispatcher is stopped.
func (c *client) rest(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.d.ctx.Done():
		return false
	}
}

// sweep returns true when there were more free nodes than it has looked for.
func (c *client) sweep() (more bool) {
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	err := c.announceConfig(ctx)
	if err == nil {
		err = c.readQueues(ctx)
	}
	if err != nil {
		if c.d.ctx.Err() == nil {
			c.sweeping.Failed(err)
		}
		return false
	}
	c.sweeping.Over()
	c.forgetNoJobs()
	probes := sweepProbes
	c.queues.byID.Range(func(_ string, q *queue) bool {
		more = c.offerNodes(q, &probes) || more
		return true
	})
	return more
}

// tellConfig tells the cell of a new configuration: what nodes were found to serve under
// an older one no longer counts then.
func (c *client) announceConfig(ctx context.Context) error {
	c.queues.configMu.Lock() // or else a call of before could come after one of now
	defer c.queues.configMu.Unlock()
	cfg := c.d.nodes.Config()
	if c.queues.config == cfg {
		return nil
	}
	if _, err := c.cell.ConfigTold(ctx, cfg.Version, cfg.Generation); err != nil {
		return err
	}
	c.queues.config = cfg
	return nil
}

// seek offers free nodes to the jobs of a class, and some that seem to be full, no more than
// there are probes left. It returns true when there are more free ones.
func (c *client) offerNodes(q *queue, probes *int) (more bool) {
	var room [sweepNodes]*selection.Node
	query := selection.Query{
		Want: sweepNodes, Samples: selection.MaxSamples,
		Now: c.d.nodes.Now(), SilenceLimit: c.d.nodes.SilenceLimit(), Skip: selection.Only(c.cell.Index()),
	}
	class := c.d.nodes.Class(q.job.Service, &q.job.Requirement)
	if class.Paused() != "" {
		return false
	}
	source, _ := c.d.sources.Get().(*selection.Source)
	defer c.d.sources.Put(source)
	// How many slots the jobs need is not known here: nodes with room for one, two, four and
	// so on are sought.
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
	query.Slots = 1
	if *probes > 0 {
		query.IgnoreFull, query.Want, query.Samples = true, min(*probes, max(1, sweepProbes/max(1, c.queues.byID.Size()))), 1
		for _, n := range class.Choose(room[:0], &query, source) {
			*probes--
			c.offer(n, true)
		}
	}
	return more
}

// lookFor has the cache looked at for a node with room for a job that waits and was offered to none that seemed free: one
// that came free while the call was under way has found nobody. Behind as many jobs as a call names nodes nobody looks.
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

// rests reports whether a node had its try and is left to the replica that goes first.
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
