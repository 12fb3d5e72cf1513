package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// placing is one job on its way to a node.
type placing struct {
	index   int
	request Request
	id      string
	// waiter is nil when nobody waits, and once the job is decided.
	waiter *waiter
	// candidates of the present round; taken is set while the first of them
	// carries this replica's unconfirmed reservation.
	candidates []*selection.Node
	room       [cell.MaxCandidates]*selection.Node
	taken      bool
	// refused are the nodes that said no.
	refused []string
	rounds  int
	// probes counts the offers to nodes that seemed full.
	probes int
	// failure is that of the last call, which may have been applied; nil is certainty.
	failure error
}

// Submit places the jobs. accepted is called exactly once for each index, before
// anything about that job reaches sink; its error is a *freeslot.Error. Submit
// returns when all are decided: within the submit timeout, and the time that the
// cell gives the call that is then under way. sink may be nil: then nobody is told
// of the result and the record alone keeps it.
func (d *Dispatcher) Submit(ctx context.Context, reqs []Request, sink Sink, accepted func(i int, jobID string, err error)) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	defer cancel()
	begin := time.Now()
	all := make([]placing, len(reqs))
	jobs := make([]*placing, len(reqs))
	for i, r := range reqs {
		jobs[i] = &all[i]
		all[i] = placing{index: i, request: r, id: cell.NewJobID()}
		if sink != nil {
			all[i].waiter = &waiter{sink: sink, checkedAt: d.cache.Now(), known: freeslot.JobStatus{
				Tenant: r.Tenant, Service: r.Job.Service, Slots: r.Job.SlotCount(),
			}}
			// Before the script runs, because the result can be faster than its reply.
			d.outstanding.Store(all[i].id, all[i].waiter)
		}
	}
	// There is something to clean up only when accepted or the sink has panicked: an
	// HTTP server survives that, and slots that stay taken would be lost for good.
	defer func() {
		for i := range all {
			d.giveBack(&all[i])
			d.abandon(&all[i])
		}
	}()
	decide := func(p *placing, a Assignment, err error) {
		d.metrics.submitted(err, time.Since(begin))
		if err != nil {
			d.abandon(p)
			accepted(p.index, "", err)
			return
		}
		accepted(p.index, p.id, nil)
		if w := p.waiter; w != nil {
			if w.opened(a) {
				d.drop(p.id, w)
			}
			p.waiter = nil
		}
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = 10 * time.Millisecond
	for len(jobs) > 0 {
		failed := false
		jobs, failed = d.round(ctx, jobs, decide)
		if !failed {
			wait.Reset()
			continue
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
		}
	}
}

// round offers each job to candidates once. It returns the jobs that are still
// undecided, and whether a call failed.
func (d *Dispatcher) round(ctx context.Context, jobs []*placing, decide func(*placing, Assignment, error)) (left []*placing, failed bool) {
	calls := jobs[:0:len(jobs)]
	subs := make([]cell.Submission, 0, len(jobs))
	for _, p := range jobs {
		if err := d.choose(p); err != nil {
			decide(p, Assignment{}, err)
			continue
		}
		calls = append(calls, p)
		subs = append(subs, d.submission(p))
	}
	results := d.cell.SubmitAll(ctx, subs)
	var failure error // one of them
	for i, p := range calls {
		d.settle(p, results[i])
		if failure == nil {
			failure = results[i].Err
		}
	}
	d.logFailure("submit", failure)
	for i, p := range calls {
		r := results[i]
		switch {
		case r.Err != nil && ctx.Err() == nil && !errors.Is(r.Err, cell.ErrStopped) && !definite(r.Err):
			p.failure, failed = r.Err, true
			left = append(left, p)
		case r.Err != nil:
			decide(p, Assignment{}, d.giveUp(p, r.Err))
		case r.Placement.Assigned:
			decide(p, Assignment{
				JobID: p.id, Node: r.Placement.Node, Attempt: r.Placement.Attempt, AssignedAtMS: r.Placement.AssignedAtMS,
			}, nil)
		default:
			p.failure = nil
			left = append(left, p)
		}
	}
	return left, failed
}

// choose picks the candidates of the next round and takes the first one's slots
// in the cache, so that this replica's other choices see them. The error is what
// the client is told when there are none.
func (d *Dispatcher) choose(p *placing) error {
	if p.failure != nil {
		return nil // same candidates: only the script knows whether it is placed
	}
	if d.ctx.Err() != nil {
		return coded("submit", cell.ErrStopped) // its result would find nobody
	}
	job := p.request.Job
	if d.short.Load() {
		return shortOfMemory()
	}
	p.rounds++
	if p.rounds > d.cfg.Rounds {
		return full(p.request.Job)
	}
	begin := time.Now()
	defer func() { d.metrics.selection.Observe(time.Since(begin).Seconds()) }()
	class := d.cache.Class(job.Service, &job.Requirement)
	q := d.query(p)
	source, _ := d.sources.Get().(*selection.Source)
	defer d.sources.Put(source)
	p.candidates = class.Choose(p.room[:0], q, source)
	if len(p.candidates) == 0 {
		// The list may be of before the last change of a profile.
		if settled := d.cache.Settled(job.Service, &job.Requirement); settled != class {
			class = settled
			p.candidates = class.Choose(p.room[:0], q, source)
		}
	}
	if len(p.candidates) == 0 && p.probes < maxProbes(job) {
		// Completions reach the cache late, or not at all when another replica's
		// jobs complete: only Redis knows that the fleet is full.
		p.probes++
		q.IgnoreFull, q.Want = true, cell.MaxCandidates
		p.candidates = class.Choose(p.room[:0], q, source)
	}
	if len(p.candidates) == 0 {
		return d.none(p, d.query(p))
	}
	p.taken = p.candidates[0].TryTake(job.SlotCount())
	return nil
}

// maxProbes is one for a job of one slot, because every node tells when it becomes
// full or free; how many slots are free in between it does not tell.
func maxProbes(job *freeslot.Job) int {
	if job.SlotCount() == 1 {
		return 1
	}
	return DefaultRounds
}

func (d *Dispatcher) query(p *placing) selection.Query {
	return selection.Query{
		Want: d.cfg.Candidates, Slots: p.request.Job.SlotCount(), Now: d.cache.Now(),
		SilenceLimit: d.cache.SilenceLimit(), Exclude: p.refused,
	}
}

// none tells why there is no candidate: no node could ever run the job, or all
// that could are busy.
func (d *Dispatcher) none(p *placing, q selection.Query) error {
	job := p.request.Job
	if d.cache.Health().Stale {
		return &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: retryAfter(),
			Message: "no node is known to fit, but this replica has lost touch with Redis",
		}
	}
	class := d.cache.Settled(job.Service, &job.Requirement)
	if class.Fits() > 0 && job.SlotCount() <= class.MaxSlots() {
		return full(job)
	}
	return &freeslot.Error{
		Code:      freeslot.CodeNoMatchingNode,
		Message:   fmt.Sprintf("none of %d nodes can run service %s with this requirement", d.cache.Size(), job.Service),
		Breakdown: class.Breakdown(q),
	}
}

func full(job *freeslot.Job) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: retryAfter(),
		Message: fmt.Sprintf("all nodes that can run service %s are busy, draining or silent", job.Service),
	}
}

func (d *Dispatcher) submission(p *placing) cell.Submission {
	names := make([]string, len(p.candidates))
	for i, n := range p.candidates {
		names[i] = n.ID()
	}
	replyTo := ""
	if p.waiter != nil {
		replyTo = d.cfg.Replica
	}
	return cell.Submission{
		JobID: p.id, Tenant: p.request.Tenant, Job: p.request.Job, Candidates: names, ReplyTo: replyTo,
	}
}

// settle takes the answer over into the cache and gives back what choose took.
func (d *Dispatcher) settle(p *placing, r cell.SubmitResult) {
	first := p.candidates[0]
	placed := r.Err == nil && r.Placement.Assigned && r.Placement.Used >= 0
	if p.taken && placed && r.Placement.Node == first.ID() {
		first.Confirm(p.request.Job.SlotCount(), r.Placement.Used)
		p.taken = false
	} else if placed {
		if node, ok := d.cache.Node(r.Placement.Node); ok {
			node.SetUsed(r.Placement.Used)
		}
	}
	d.giveBack(p)
	for _, refusal := range r.Placement.Refusals {
		d.metrics.refusals.WithLabelValues(string(refusal.Reason)).Inc()
		d.cache.Refused(refusal)
		p.refused = append(p.refused, refusal.Node)
	}
}

// giveBack releases what choose took, unless that was done.
func (d *Dispatcher) giveBack(p *placing) {
	if p.taken {
		p.candidates[0].Release(p.request.Job.SlotCount())
		p.taken = false
	}
}

// definite reports whether Redis itself answered with an error: the script did
// not run, or refused the call before its first write.
func definite(err error) bool {
	return freeslot.CodeOf(coded("submit", err)) != freeslot.CodeUnavailable
}

// giveUp is what the client is told of a job whose fate is open or that was never sent.
func (d *Dispatcher) giveUp(p *placing, err error) error {
	open := p.failure != nil || !isQueued(err) && !definite(err)
	if p.failure != nil && errors.Is(err, cell.ErrNotSent) {
		err = p.failure // that the time was over says less
	}
	err = coded("submit", err)
	var known *freeslot.Error
	if open && errors.As(err, &known) {
		told := *known // which other jobs of the call may share
		told.Message += "; the job may have been placed all the same"
		return &told
	}
	return err
}

// isQueued reports whether the call was never sent.
func isQueued(err error) bool {
	return errors.Is(err, cell.ErrStopped) || errors.Is(err, cell.ErrNotSent)
}

// abandon forgets a job that was not accepted.
func (d *Dispatcher) abandon(p *placing) {
	if w := p.waiter; w != nil {
		w.forget(nil)
		d.drop(p.id, w)
		p.waiter = nil
	}
}
