package dispatch

import (
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// placing is one job on its way to a node.
type placement struct {
	index   int
	request Request
	// id and link are those of the cell of the present candidates. A job that nodes or
	// a cell have refused, or that was never sent, can go to another cell, under
	// another id. Invariant: once failure is set they stay as they are.
	id     string
	client *client
	// waiter is nil when nobody waits, and once the job is decided.
	waiter *waiter
	// query is that of the last choice. It is here because a variable of its own would be allocated for every choice.
	query selection.Query
	// to is the cell of the next call. With enqueue, the job is to wait there if no slot
	// is free; it stays so once it is.
	to      *client
	enqueue bool
	// candidates of the present round, all of one cell; taken is set while the first
	// of them carries this replica's unconfirmed reservation. Where the job is to be
	// enqueued there may be none.
	candidates []*selection.Node
	room       [cell.MaxCandidates]*selection.Node
	taken      bool
	// refused are the nodes that said no, in rounds calls.
	refused []string
	rounds  int
	// probes counts the offers to nodes that seemed full, but for that of enqueueing.
	probes int
	// probe is what the present call asks nodes that seem full; without a class it asks none.
	probe probe
	// class is the list that was last chosen from.
	class *selection.Class
	// failure is that of the last call of unknown fate; nil means there was none. Not
	// even a refusal that comes later clears it: the call may wait in a connection that
	// is dead here and still be applied.
	failure error
	// repeat is true while the call to make is the one of unknown fate once more.
	repeat bool
	// missed is true when the next call is to come after a pause.
	afterPause bool
	// away are the cells whose Redis turned the job away, and refusal is what it said.
	refusedCells selection.CellMask
	refusedWith  error
}

// enlist gives the job its id, and has its result awaited, in the cell that it goes to:
// before the script runs, because the result can be faster than its reply.
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
		if p.waiter.known.Class == "" { // else others may read it by now
			p.waiter.known.Class = p.class.ID()
		}
		c.outstanding.Store(p.id, p.waiter)
	}
}

func (d *Dispatcher) submission(p *placement) cell.Submission {
	names := make([]string, len(p.candidates))
	for i, n := range p.candidates {
		names[i] = n.ID()
	}
	replyTo := ""
	if p.waiter != nil {
		replyTo = d.cfg.Replica
	}
	var gates []cell.Gate
	if p.enqueue {
		gates = d.limitsOf(&p.request, p.client.cell.Index())
	}
	once := ""
	if p.request.Run != nil {
		once = p.request.Run.Once
	}
	return cell.Submission{
		Gates: gates, Once: once,
		JobID: p.id, Tenant: p.request.Tenant, Job: p.request.Job, Candidates: names, ReplyTo: replyTo,
		Class:  cell.Class{ID: p.class.ID(), Definition: p.class.Definition()},
		Weight: d.cfg.Weight(p.request.Tenant),
	}
}

// settle takes the answer over into the cache and gives back what choose took.
func (d *Dispatcher) updateCache(p *placement, r cell.SubmitResult) {
	placed := r.Err == nil && r.Placement.Assigned && r.Placement.Used >= 0
	if placed {
		node := p.candidate(r.Placement.Node)
		if p.taken && node == p.candidates[0] {
			node.Confirm(p.request.Job.SlotCount(), r.Placement.Used)
			p.taken = false
		} else if node != nil {
			node.SetUsed(r.Placement.Used)
		}
		if node != nil {
			node.Accepted()
		}
	}
	p.giveBack()
	for _, refusal := range r.Placement.Refusals {
		d.noteRefusal(p, refusal)
	}
}

// refused corrects the cache, in which the node seemed to be free.
func (d *Dispatcher) noteRefusal(p *placement, r cell.Refusal) {
	d.metrics.refusals.WithLabelValues(string(r.Reason)).Inc()
	d.nodes.Refused(r)
	// A node that is full has done nothing wrong: others were faster.
	if node := p.candidate(r.Node); node != nil && r.Reason != cell.RefusedFull {
		node.Refused(d.nodes.Now())
	}
	p.refused = append(p.refused, r.Node)
}

// candidate is the one of this name; nil if there is none.
func (p *placement) candidate(id string) *selection.Node {
	for _, n := range p.candidates {
		if n.ID() == id {
			return n
		}
	}
	return nil
}

// giveBack releases what choose took, unless that was done.
func (p *placement) giveBack() {
	if p.taken {
		p.candidates[0].Release(p.request.Job.SlotCount())
		p.taken = false
	}
}

// told is what the client is told of a job that was given up because of err. Where
// its fate is open that goes before anything else: what was refused in the end may
// have been placed by an earlier call.
func (p *placement) clientError(err error) error {
	if p.failure == nil {
		return err
	}
	open := codedFailure("submit", p.failure) // never one of ours, which others may share
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
