package session

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/wire"
)

// tooManyRetryAfter is what a client is told that has too many jobs without a
// result: about the time of a short job.
const tooManyRetryAfter = 100 * time.Millisecond

// serve carries out one request.
func (s *session) serve(req *wire.Request) {
	switch req.Type {
	case wire.TypeSubmit:
		s.submit(req)
	case wire.TypeCancel:
		s.cancel(req)
	case wire.TypeAttach:
		s.attach(req)
	case wire.TypePing: // answered by the reader
	}
}

// submit hands the good jobs of a request to the dispatcher. Each job gets its
// own answer.
func (s *session) submit(req *wire.Request) {
	good := make([]int, 0, len(req.Jobs))
	for i := range req.Jobs {
		if err := s.handler.limits.CheckJob(req, i); err != nil {
			s.sendError(req.ID, req.Index(i), "", err)
			continue
		}
		good = append(good, i)
	}
	room, refusal := s.reserve(len(good))
	for _, i := range good[room:] {
		s.sendError(req.ID, req.Index(i), "", refusal)
	}
	if good = good[:room]; len(good) > 0 {
		s.dispatch(req, good)
	}
}

// reserve takes room for up to n jobs. The error is why it is not n.
func (s *session) reserve(n int) (int, *freeslot.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0, stoppingError("the job was not submitted")
	}
	limit := s.handler.cfg.MaxJobs
	room := min(n, limit-len(s.jobs)-s.reserved)
	if room < 0 {
		room = 0 // attached jobs count, and are not refused
	}
	s.reserved += room
	if room == n {
		return n, nil
	}
	return room, &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: tooManyRetryAfter,
		Message: fmt.Sprintf("the session has %d jobs without a result, which is its limit", limit),
	}
}

func (s *session) dispatch(req *wire.Request, good []int) {
	requests := make([]dispatch.Request, len(good))
	for k, i := range good {
		requests[k] = dispatch.Request{Tenant: s.principal.tenant, Job: &req.Jobs[i]}
	}
	var spans []trace.Span
	if s.handler.tracer.enabled() {
		spans = make([]trace.Span, len(good))
		for k, r := range requests {
			spans[k] = s.handler.tracer.start(r.Job, r.Tenant)
		}
	}
	s.handler.dispatcher.Submit(s.handler.calls, requests, s, func(k int, a dispatch.Accepted, err error) {
		s.answer(req.ID, req.Index(good[k]), a, err)
		if spans != nil {
			endSpan(spans[k], a.JobID, err)
		}
	})
}

// answer tells what became of one submitted job. Invariant: "accepted" is in the
// outbox before the job can be found in jobs, and so before any news of it.
func (s *session) answer(id string, index int, a dispatch.Accepted, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
	if err != nil {
		s.sendError(id, index, a.JobID, s.asError("submit", a.JobID, err))
		s.leaveIfIdle()
		return
	}
	s.send(func(dst []byte) []byte { return wire.AppendAccepted(dst, id, index, a.JobID, a.Position) })
	if held := s.jobs[keyOf(a.JobID)]; held != nil { // by its idempotency key it is a job that an attach is under way to
		held.owned = true
		if held.ended != nil { // the client was told before it was accepted, and all that comes later is dropped
			s.send(func(dst []byte) []byte { return wire.AppendResult(dst, held.ended) })
		}
		return
	}
	s.jobs[keyOf(a.JobID)] = nil
}

// cancel is carried out also when the session ends while it waits for its turn: it
// has been read.
func (s *session) cancel(req *wire.Request) {
	s.ask()
	defer s.asked()
	tenant := s.principal.tenant
	if s.principal.operator {
		tenant = ""
	}
	status, err := s.handler.dispatcher.Cancel(s.handler.calls, tenant, req.JobID)
	if err != nil {
		s.sendError(req.ID, wire.NoIndex, req.JobID, s.asError("cancel", req.JobID, err))
		return
	}
	s.reply(&status, func() {
		s.send(func(dst []byte) []byte { return wire.AppendStatus(dst, req.ID, &status) })
	})
}

// attach has a job's result sent here. Operators, too, attach only to jobs of
// their own tenant: it takes the result away from whoever waits for it.
func (s *session) attach(req *wire.Request) {
	defer s.asked()
	if !s.ask() {
		return // nobody is left to attach for
	}
	if err := s.beginAttach(req.JobID); err != nil {
		s.sendError(req.ID, wire.NoIndex, req.JobID, err)
		return
	}
	status, err := s.handler.dispatcher.Attach(s.life, s.principal.tenant, req.JobID, s)
	if s.life.Err() != nil && freeslot.CodeOf(err) == freeslot.CodeUnavailable {
		err = attachElsewhere()
	}
	s.reply(&status, func() { s.endAttach(req, status, err) })
}

// beginAttach makes the job the session's before the dispatcher can send its
// result, and holds back its news until endAttach.
func (s *session) beginAttach(jobID string) *freeslot.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return attachElsewhere()
	}
	a, known := s.jobs[keyOf(jobID)]
	if !known && len(s.jobs)+s.reserved >= s.handler.cfg.MaxJobs {
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: tooManyRetryAfter,
			Message: fmt.Sprintf("the session has %d jobs without a result, which is its limit", s.handler.cfg.MaxJobs),
		}
	}
	if a == nil {
		a = &attachment{owned: known}
		s.jobs[keyOf(jobID)] = a
	}
	a.pending++
	return nil
}

func attachElsewhere() *freeslot.Error { return stoppingError("attach on another replica") }

func (s *session) endAttach(req *wire.Request, status freeslot.JobStatus, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.jobs[keyOf(req.JobID)] // there as long as an attach is pending
	a.pending--
	if err != nil {
		s.sendError(req.ID, wire.NoIndex, req.JobID, s.asError("attach", req.JobID, err))
	} else {
		a.owned = true
		if a.ended != nil { // it was read later, by another attach that was answered first
			status = *a.ended
		} else if status.State.Terminal() {
			a.ended = &status
		}
		s.send(func(dst []byte) []byte { return wire.AppendStatus(dst, req.ID, &status) })
	}
	last := max(status.Attempt, a.assigned.Attempt)
	if status.Attempt >= a.assigned.Attempt {
		a.assigned = dispatch.Assignment{} // the status has told of it
	}
	if a.pending > 0 {
		return
	}
	ended := a.ended != nil
	if a.assigned.Attempt > 0 && a.owned && !ended {
		s.assign(a.assigned)
	}
	if told := status.Progress; a.owned && !ended && a.progress.Attempt > 0 && a.progress.Attempt >= last && (told == nil || a.progress.After(told)) {
		s.tell(a.id, &a.progress)
	}
	switch {
	case ended, !a.owned:
		delete(s.jobs, keyOf(req.JobID))
	case a.result != nil:
		s.deliver(a.result)
	case a.detached:
		s.leaveTo(a.id)
	default:
		s.jobs[keyOf(req.JobID)] = nil
	}
	s.leaveIfIdle()
}

// asError logs what the client is not told.
func (s *session) asError(operation, jobID string, err error) *freeslot.Error {
	if freeslot.CodeOf(err) == freeslot.CodeInternal {
		s.logInternal(operation, jobID, err)
	}
	return wire.AsError(err)
}
