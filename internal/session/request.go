package session

import (
	"cmp"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
)

// tooManyRetryAfter is the pause for a client that has too many jobs without a result: about the
// time of a short job.
const tooManyRetryAfter = 100 * time.Millisecond

// calls holds the names of the frames in the table of rights. The reader answers a ping, which is
// for everyone.
var calls = map[wire.RequestType]string{
	wire.TypeSubmit: identity.FrameSubmit,
	wire.TypeCancel: identity.FrameCancel,
	wire.TypeAttach: identity.FrameAttach,
	wire.TypePing:   identity.FramePing,
}

// serve carries out one request.
func (s *session) serve(req *wire.Request) {
	grant, err := s.principal.May(calls[req.Type])
	if err != nil {
		s.refuse(req, wire.AsError(err))
		return
	}
	switch req.Type {
	case wire.TypeSubmit:
		s.submit(req)
	case wire.TypeCancel:
		s.cancel(req, grant)
	case wire.TypeAttach:
		s.attach(req)
	case wire.TypePing: // answered by the reader
	}
}

// refuse answers a request that the caller's role may not make: each job of a submit, or the frame.
func (s *session) refuse(req *wire.Request, err *freeslot.Error) {
	for i := range req.Jobs {
		s.sendError(req.ID, req.Index(i), "", err)
	}
	if len(req.Jobs) == 0 {
		s.sendError(req.ID, wire.NoIndex, req.JobID, err)
	}
}

// submit passes the valid jobs of a request to the dispatcher. Each job gets its own answer.
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

// reserve takes room for up to n jobs. The error is the reason that there is room for fewer.
func (s *session) reserve(n int) (int, *freeslot.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return 0, endingError(s.why, "the job was not submitted")
	}
	// Attached jobs count and are never refused, so there may be too many already.
	room := max(0, min(n, s.handler.cfg.MaxJobs-len(s.jobs)-s.reserved))
	s.reserved += room
	if room == n {
		return n, nil
	}
	return room, s.tooManyJobs()
}

func (s *session) tooManyJobs() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: tooManyRetryAfter,
		Message: fmt.Sprintf("the session has %d jobs without a result, which is its limit", s.handler.cfg.MaxJobs),
	}
}

func (s *session) dispatch(req *wire.Request, good []int) {
	requests := make([]dispatch.Request, len(good))
	spans := make([]trace.Span, len(good))
	for k, i := range good {
		requests[k] = dispatch.Request{Tenant: s.principal.Tenant, Job: &req.Jobs[i]}
		spans[k] = s.handler.tracer.start(&req.Jobs[i], s.principal.Tenant)
	}
	s.handler.dispatcher.Submit(s.handler.calls, requests, s, func(k int, a dispatch.Accepted, err error) {
		s.answerSubmit(req.ID, req.Index(good[k]), a, err)
		endSpan(spans[k], a.JobID, err)
	})
}

// answerSubmit reports the outcome of one submitted job. Invariant: "accepted" is in the outbox
// before the job is in jobs, and so before any news about it.
func (s *session) answerSubmit(id string, index int, a dispatch.Accepted, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
	if err != nil {
		s.sendError(id, index, a.JobID, s.asError("submit", a.JobID, err))
		s.closeIfIdle()
		return
	}
	s.send(func(dst []byte) []byte { return wire.AppendAccepted(dst, id, index, a.JobID, a.Position) })
	held := s.jobs[keyOf(a.JobID)]
	if held == nil {
		s.jobs[keyOf(a.JobID)] = nil
		return
	}
	// The idempotency key belongs to a job to which an attach is under way.
	held.owned = true
	if held.ended != nil { // the client got the end before accepted; all later news is dropped
		s.send(func(dst []byte) []byte { return wire.AppendResult(dst, held.ended) })
	}
}

// cancel cancels a job. It does so even if the session ends while it waits for its turn, because
// the request was read.
func (s *session) cancel(req *wire.Request, grant identity.Grant) {
	s.takeTurn()
	defer s.giveTurn()
	tenant := s.principal.Tenant
	if grant == identity.All {
		tenant = ""
	}
	var change *audit.Change
	var err error
	if log := s.handler.cfg.Audit; log != nil && s.principal.Audited(identity.FrameCancel) {
		change, err = log.Begin(s.handler.calls, &s.principal, identity.FrameCancel, req.JobID, s.address, "")
	}
	var status freeslot.JobStatus
	if err == nil {
		status, err = s.handler.dispatcher.Cancel(s.handler.calls, tenant, req.JobID)
		change.Note("", string(status.State))
		change.End(s.handler.calls, cmp.Or(string(freeslot.CodeOf(err)), audit.OutcomeDone))
	}
	if err != nil {
		s.sendError(req.ID, wire.NoIndex, req.JobID, s.asError("cancel", req.JobID, err))
		return
	}
	s.replyStatus(&status, func() {
		s.send(func(dst []byte) []byte { return wire.AppendStatus(dst, req.ID, &status) })
	})
}

// asError logs the cause of an internal error, which the client does not get.
func (s *session) asError(operation, jobID string, err error) *freeslot.Error {
	if freeslot.CodeOf(err) == freeslot.CodeInternal {
		s.handler.log.Error("session.request_failed",
			zap.String(logging.FieldSession, s.id),
			zap.String(logging.FieldTenant, s.principal.Tenant),
			zap.String("operation", operation),
			zap.String(logging.FieldJob, jobID),
			zap.Error(err),
		)
	}
	return wire.AsError(err)
}
