package dispatch

import (
	"context"
	"time"

	"github.com/freeslot/freeslot"
)

// Submit places the jobs, or enqueues them if no slot is free. It calls accepted exactly once for
// each index, before any news of that job reaches sink. The error is a *freeslot.Error. Submit
// returns when all jobs are decided: within the submit timeout, plus the time that cells give the
// calls then under way. If sink is nil, only the record keeps the result.
func (d *Dispatcher) Submit(
	ctx context.Context, reqs []Request, sink Sink, accepted func(i int, a Accepted, err error),
) {
	d.submits.Add(1)
	defer d.submits.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, d.cfg.SubmitTimeout)
	s := submit{
		d: d, ctx: ctx, begin: time.Now(), accepted: accepted, all: make([]placement, len(reqs)),
		ended: make(chan *call, len(reqs)), // each call has at least one job of its own
	}
	jobs := make([]*placement, len(reqs))
	for i, r := range reqs {
		r.Job = r.Job.Asked()
		jobs[i] = &s.all[i]
		s.all[i] = placement{index: i, request: r}
		if sink != nil {
			s.all[i].waiter = &waiter{sink: sink, checkedAt: d.nodes.Now(), known: freeslot.JobStatus{
				Tenant: r.Tenant, Service: r.Job.Service, Slots: r.Job.SlotCount(), Priority: r.Job.Priority,
			}, timeoutMS: r.Job.TimeoutMS, traceParent: r.Job.TraceParent, ran: d.cfg.Ran}
			if r.Job.RunAtMS == 0 { // otherwise it waits because it shall
				s.all[i].waiter.begin = s.begin
			}
		}
	}
	// There is something to clean up only if accepted or the sink has panicked. An HTTP server
	// survives that; slots that stay taken would be lost for good.
	defer func() {
		cancel()
		s.cleanUp()
	}()
	s.run(s.admit(jobs))
}

func (s *submit) run(ready []*placement) {
	for len(ready) > 0 || s.underWay > 0 {
		calls := s.prepareFenced(ready)
		ready = nil
		if len(calls) == 1 && s.underWay == 0 { // the usual case needs no goroutine
			calls[0].run(s.ctx)
			ready = s.finish(calls[0])
			continue
		}
		for _, c := range calls {
			s.start(c)
		}
		if s.underWay > 0 {
			s.underWay--
			ready = s.finish(<-s.ended)
		}
	}
}
