package dispatch

import (
	"slices"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// placement is one job on its way to a node or a queue.
type placement struct {
	index   int
	request Request
	// id and client belong to the cell of the present candidates. A job that nodes or a cell have
	// refused, or that was never sent, can go to another cell, under another id. Invariant: once
	// failure is set, they stay as they are.
	id     string
	client *client
	// waiter is nil if no sink awaits the result, and once the job is decided.
	waiter *waiter
	// query is the query of the last choice. A local variable would be allocated for every choice.
	query selection.Query
	// to is the cell of the next call. If enqueue is true, the job waits there if no slot is free.
	// Once enqueue is true, it stays true.
	to      *client
	enqueue bool
	// candidates holds the candidates of the present round, all in one cell. It may be empty if
	// enqueue is true. taken is true while the first one carries this replica's unconfirmed
	// reservation.
	candidates []*selection.Node
	room       [cell.MaxCandidates]*selection.Node
	taken      bool
	// ungrouped is true if chooseAlike will choose the candidates of the first round. grouped is
	// true if it has.
	ungrouped, grouped bool
	// refused holds the nodes that refused the job, in rounds calls.
	refused []string
	rounds  int
	// probes counts the offers to nodes that seemed full, except the one of enqueueing.
	probes int
	// probe is the question that the present call asks nodes that seem full.
	probe probe
	// class is the list of the last choice.
	class *selection.Class
	// failure is the error of the last call of unknown outcome, if there was one. A later refusal
	// does not clear it: the call may be stuck in a connection and still be applied.
	failure error
	// repeat is true if the next call repeats the one of unknown outcome.
	repeat bool
	// afterPause is true if the next call comes after a pause.
	afterPause bool
	// refusedCells holds the cells whose Redis refused the job. refusedWith is the last such error.
	refusedCells selection.CellMask
	refusedWith  error
}

// assignID gives the job an id of the cell that it goes to, and stores its waiter there: before the
// script runs, because the result can be faster than the script's reply.
func (d *Dispatcher) assignID(p *placement) {
	c := p.to
	if p.client == c {
		return
	}
	if p.waiter != nil && p.client != nil {
		p.client.drop(p.id, p.waiter)
	}
	if p.client, p.id = c, c.cell.NewJobID(); p.request.Run != nil {
		p.id = p.request.Run.JobID
	}
	if p.waiter != nil {
		if p.waiter.known.Class == "" { // otherwise other goroutines may read it already
			p.waiter.known.Class = p.class.ID()
		}
		c.outstanding.Store(p.id, p.waiter)
	}
}

func (d *Dispatcher) submission(p *placement) cell.Submission {
	sub := cell.Submission{
		JobID: p.id, Tenant: p.request.Tenant, Job: p.request.Job, Candidates: make([]string, len(p.candidates)),
		Class:  cell.Class{ID: p.class.ID(), Definition: p.class.Definition()},
		Weight: d.cfg.Weight(p.request.Tenant),
	}
	for i, n := range p.candidates {
		sub.Candidates[i] = n.ID()
	}
	if p.waiter != nil {
		sub.ReplyTo = d.cfg.Replica
	}
	if p.enqueue {
		sub.Limits = d.limitsOf(&p.request, p.client.cell.Index())
	}
	if p.request.Run != nil {
		sub.Once = p.request.Run.Once
	}
	return sub
}

// updateCache puts the answer of a call into the cache, and releases the slots that chooseNode
// took. blamed holds the nodes whose refusals in this call already count.
func (d *Dispatcher) updateCache(p *placement, r cell.SubmitResult, blamed []*selection.Node) []*selection.Node {
	if r.Err == nil && r.Placement.Assigned && r.Placement.Used >= 0 {
		if node := p.candidate(r.Placement.Node); node != nil {
			if p.taken && node == p.candidates[0] {
				node.Confirm(p.request.Job.SlotCount(), r.Placement.Used)
				p.taken = false
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

// candidate returns the candidate with this name, or nil.
func (p *placement) candidate(id string) *selection.Node {
	for _, n := range p.candidates {
		if n.ID() == id {
			return n
		}
	}
	return nil
}

// giveBack releases the slots that chooseNode took, unless that was done already.
func (p *placement) giveBack() {
	if p.taken {
		p.candidates[0].Release(p.request.Job.SlotCount())
		p.taken = false
	}
}

// clientError returns what the client learns when the job is given up because of err. An unknown
// outcome has precedence: an earlier call may have placed a job that was refused in the end.
func (p *placement) clientError(err error) error {
	if p.failure == nil {
		return err
	}
	open := codedFailure("submit", p.failure) // a new error: failure is no *freeslot.Error, which jobs could share
	open.Message += "; the job may have been placed all the same, as " + p.id
	return open
}

// abandon forgets a job that was not accepted.
func (p *placement) abandon() {
	if w := p.waiter; w != nil {
		w.forget(nil)
		if p.client != nil {
			p.client.drop(p.id, w)
		}
		p.waiter = nil
	}
}
