package dispatch

import (
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// placement is one job on its way to a node or a queue.
type placement struct {
	index   int
	request Request
	// id and at belong to the cell of the present candidates. A job that nodes or a cell have
	// refused, or that was never sent, can go to another cell, under another id. Invariant: once
	// failure is set, they stay as they are.
	id string
	at *cellClient
	// waiter is nil if no sink awaits the result, and once the job is decided.
	waiter *waiter

	stage stage
	// failure is the error of the last call of unknown outcome, if there was one. A later refusal
	// does not clear it: the call may be stuck in a connection and still be applied.
	failure error
	// afterPause is true if the next call comes after a pause.
	afterPause bool

	// query is the query of the last choice. A local variable would be allocated for every choice.
	// class is the list of that choice.
	query selection.Query
	class *selection.Class
	// to is the cell of the next call.
	to *cellClient
	// candidates holds the candidates of the next call, all in one cell. It may be empty if the
	// job is enqueued. taken is the one that carries this replica's unconfirmed reservation, or nil.
	candidates []*selection.Node
	room       [cell.MaxCandidates]*selection.Node
	taken      *selection.Node
	// refused holds the nodes that refused the job, in rounds calls.
	refused []string
	rounds  int
	// probes counts the offers to nodes that seemed full, except the one of enqueueing. probe is
	// the question that the next call asks such nodes.
	probes int
	probe  probe
	// nodeWait is how long the job may wait for a node that fits; 0 if one does.
	nodeWait time.Duration
	// refusedCells holds the cells whose Redis refused the job. refusedWith is the last such error.
	refusedCells selection.CellMask
	refusedWith  error
}

// stage says what the next call does with a job. Only the methods below change it:
//
//	          mayJoin         join
//	offer <-----------> alike -----> chosen    nodes are chosen for several jobs at once
//	          leave                    |
//	  ^                   useChoice    |
//	  +--------------------------------+
//	offer   -- enqueue ------> queue           for good
//	offer   -- outcomeUnknown -> repeatOffer -- answered -> offer
//	queue   -- outcomeUnknown -> repeatQueue -- answered -> queue
//	repeatOffer -- enqueue --> repeatQueue
type stage uint8

const (
	stageOffer       stage = iota // offers it to nodes that seem free
	stageAlike                    // the same; chooseAlike may choose the nodes
	stageChosen                   // the same; chooseAlike has chosen the nodes
	stageQueue                    // enqueues it, unless a candidate has a free slot
	stageRepeatOffer              // repeats an offer of unknown outcome
	stageRepeatQueue              // repeats an enqueueing of unknown outcome
)

// enqueues reports whether the next call enqueues the job.
func (p *placement) enqueues() bool { return p.stage == stageQueue || p.stage == stageRepeatQueue }

// repeats reports whether the next call repeats one of unknown outcome.
func (p *placement) repeats() bool { return p.stage == stageRepeatOffer || p.stage == stageRepeatQueue }

// enqueue makes the next call, and all later ones, enqueue the job.
func (p *placement) enqueue() {
	if p.repeats() {
		p.stage = stageRepeatQueue
	} else {
		p.stage = stageQueue
	}
}

// mayJoin lets chooseAlike choose the nodes of the job's first call. leave takes that back, and
// join records that they are chosen.
func (p *placement) mayJoin() { p.stage = stageAlike }
func (p *placement) leave()   { p.stage = stageOffer }
func (p *placement) join()    { p.stage = stageChosen }

// useChoice reports whether chooseAlike has chosen the nodes of the next call. Later ones choose
// for the job alone.
func (p *placement) useChoice() bool {
	if p.stage != stageChosen {
		return false
	}
	p.stage = stageOffer
	return true
}

// outcomeUnknown records a call that may have been applied. It is repeated.
func (p *placement) outcomeUnknown(err error) {
	p.failure = err
	if p.enqueues() {
		p.stage = stageRepeatQueue
	} else {
		p.stage = stageRepeatOffer
	}
}

// answered records that Redis has answered the call, and has neither placed nor enqueued the job.
func (p *placement) answered() {
	p.afterPause = false
	if p.enqueues() {
		p.stage = stageQueue
	} else {
		p.stage = stageOffer
	}
}

// take takes the job's slots of the first candidate in the cache, so that this replica's other
// choices see them. It returns false if other jobs have filled the node.
func (p *placement) take(n *selection.Node) bool {
	if !n.TryTake(p.request.Job.SlotCount()) {
		return false
	}
	p.taken = n
	return true
}

// giveBack releases the slots that take took, unless that was done already.
func (p *placement) giveBack() {
	if p.taken != nil {
		p.taken.Release(p.request.Job.SlotCount())
		p.taken = nil
	}
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

// assignID gives the job an id of the cell that it goes to, and stores its waiter there: before the
// script runs, because the result can be faster than the script's reply.
func (p *placement) assignID() {
	if p.at == p.to {
		return
	}
	if p.waiter != nil && p.at != nil {
		p.at.drop(p.id, p.waiter)
	}
	if p.at, p.id = p.to, p.to.cell.NewJobID(); p.request.Run != nil {
		p.id = p.request.Run.JobID
	}
	if p.waiter != nil {
		if p.waiter.known.Class == "" { // otherwise other goroutines may read it already
			p.waiter.known.Class = p.class.ID()
		}
		p.at.outstanding.Store(p.id, p.waiter)
	}
}

// abandon forgets a job that was not accepted.
func (p *placement) abandon() {
	if w := p.waiter; w != nil {
		w.forget(nil)
		if p.at != nil {
			p.at.drop(p.id, w)
		}
		p.waiter = nil
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
