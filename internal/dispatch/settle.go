package dispatch

import (
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// errUndecided is the error for an enqueued job that the answer neither placed nor kept.
var errUndecided = errors.New("the job was neither placed nor enqueued")

// finish processes the answers of a call, and returns the jobs that are still undecided.
func (s *submit) finish(c *call) (ready []*placement) {
	var blamed []*selection.Node
	for i, p := range c.jobs {
		r := c.results[i]
		blamed = s.d.updateCache(p, r, blamed)
		if p.probe != (probe{}) {
			c.at.full.answered(p.probe, time.Now(), r.Err == nil && r.Placement.Waiting && r.Placement.Position > 0)
			p.probe = probe{}
		}
	}
	s.noteFailures(c) // before the next choice
	owned := false
	for i, p := range c.jobs {
		r := c.results[i]
		switch {
		case r.Err != nil && s.retry(p, r.Err):
			ready = append(ready, p)
		case r.Err != nil:
			s.decide(p, cell.Placement{}, coded("submit", r.Err))
		case r.Placement.Assigned:
			c.at.metrics.placed.Inc()
			if c.enqueue {
				c.at.queues.noteServed(p.class)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Waiting:
			c.at.metrics.enqueued.Inc()
			if r.Placement.Position > 0 { // otherwise it is scheduled, or held back by a limit
				c.at.noteWaiting(p.class, &p.request)
				s.offerFreeNode(p, r.Placement.Position)
			}
			s.decide(p, r.Placement, nil)
		case r.Placement.Owner != "":
			owned = true // decided last: the owner may be a job of this call
		case c.enqueue:
			s.decide(p, cell.Placement{}, coded("submit", errUndecided))
		case r.Placement.Behind:
			c.at.noteWaiting(p.class, &p.request)
			p.answered()
			p.enqueue()
			ready = append(ready, p)
		default:
			p.answered()
			p.rounds++
			ready = append(ready, p)
		}
	}
	if owned {
		s.answerOwned(c.jobs, c.results)
	}
	return ready
}

// updateCache puts the answer of a call into the cache, and releases the slots that chooseNode
// took. blamed holds the nodes whose refusals in this call already count.
func (d *Dispatcher) updateCache(p *placement, r cell.SubmitResult, blamed []*selection.Node) []*selection.Node {
	if r.Err == nil && r.Placement.Assigned && r.Placement.Used >= 0 {
		if node := p.candidate(r.Placement.Node); node != nil {
			if node == p.taken {
				node.Confirm(p.request.Job.SlotCount(), r.Placement.Used)
				p.taken = nil
			} else {
				node.SetUsed(r.Placement.Used)
			}
			node.Accepted()
		}
	}
	p.giveBack()
	for _, refusal := range r.Placement.Refusals {
		blamed = d.noteRefusal(p, refusal, blamed)
	}
	return blamed
}

// noteRefusal corrects the cache, in which the node seemed free. If a node refuses several jobs of
// one call, that counts as one refusal.
func (d *Dispatcher) noteRefusal(p *placement, r cell.Refusal, blamed []*selection.Node) []*selection.Node {
	d.metrics.refusals.WithLabelValues(string(r.Reason)).Inc()
	d.nodes.Refused(r)
	// A full node counts as healthy: other jobs were faster.
	if node := p.candidate(r.Node); node != nil && r.Reason != cell.RefusedFull && !slices.Contains(blamed, node) {
		node.Refused(d.nodes.Now())
		blamed = append(blamed, node)
	}
	p.refused = append(p.refused, r.Node)
	return blamed
}

// offerFreeNode looks in the cache for a node with room for a waiting job that was offered to no
// node that seemed free. A node that became free during the call found no waiting job. The look is
// pointless if cell.MaxCandidates jobs wait in front: they get these nodes first.
func (s *submit) offerFreeNode(p *placement, position int) {
	q := &p.query
	if len(p.candidates) > 0 && !q.IgnoreFull || position > cell.MaxCandidates {
		return
	}
	q.Now, q.Skip, q.IgnoreFull, q.Want = s.d.nodes.Now(), selection.Only(p.at.cell.Index()), false, 1
	if s.d.draw(p); len(p.candidates) > 0 {
		p.at.free.offer(p.candidates[0], false)
	}
}

// noteFailures leaves a cell out of choices if it did not answer, or refused a write.
func (s *submit) noteFailures(c *call) {
	var failure error // the first one, or the first that means that the cell is away
	notSent := false  // after a failed call whose own Submit may not have noted it yet
	answered, refused := false, false
	for i := range c.results {
		switch err := c.results[i].Err; {
		case err == nil:
			answered = true
		case errors.Is(err, cell.ErrNotSent):
			notSent = notSent || s.ctx.Err() == nil
		default:
			if failure == nil || isAway(err) && !isAway(failure) {
				failure = err
			}
			refused = refused || refusalCode(err) != ""
		}
	}
	logFailure(c.at.sampled, "submit", failure)
	if refused {
		s.d.nodes.CellRefused(c.at.cell.Index())
	}
	switch {
	case failure != nil && isAway(failure):
		c.at.noteFailure()
	case notSent:
		s.d.nodes.CellFailed(c.at.cell.Index())
	case answered:
		s.d.failing.set(c.at.cell.Index(), false)
	}
}

// retry reports whether a job whose call failed is tried again, and records what is known of it.
// After a call of unknown outcome the job stays in its cell, under its id.
func (s *submit) retry(p *placement, err error) bool {
	if !notApplied(err) {
		p.outcomeUnknown(err)
	}
	p.afterPause = true
	switch {
	case s.ctx.Err() != nil || errors.Is(err, cell.ErrStopped) || isInvalid(err),
		isOutOfMemory(err) && (p.failure != nil || s.d.cells.Len() == 1):
		return false
	case p.failure != nil || isNotSent(err):
		return true
	case isOutOfMemory(err):
		// watchMemory would notice it within a second. Other cells may have room.
		p.at.setOutOfMemory(true, zap.Error(err))
	default:
		p.refusedCells, p.refusedWith = p.refusedCells.With(p.at.cell.Index()), err
	}
	p.afterPause = false // another cell needs no pause
	return true
}
