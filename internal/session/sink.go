package session

import (
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/logging"
	"github.com/freeslot/freeslot/internal/session/wire"
)

// attachment holds back a job's news while the status that must come first is on
// its way.
type attachment struct {
	// pending counts the attaches under way.
	pending int
	// owned: the job's result is to come here, whatever becomes of the attaches.
	owned bool
	// assigned, result and detached are what was held back; of the attempts, the last.
	assigned dispatch.Assignment
	result   *freeslot.JobStatus
	detached bool
}

// Assigned implements dispatch.Sink.
func (s *session) Assigned(a dispatch.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch held, ok := s.jobs[a.JobID]; {
	case !ok:
	case held != nil:
		held.assigned = a
	default:
		s.assign(a)
	}
}

// Result implements dispatch.Sink. A job that the session does not wait for has had its
// result, or was detached.
func (s *session) Result(status freeslot.JobStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a, ok := s.jobs[status.ID]; {
	case !ok:
	case a != nil:
		a.result = &status
	default:
		s.deliver(&status)
		s.leaveIfIdle()
	}
}

// Detached implements dispatch.Sink.
func (s *session) Detached(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a, ok := s.jobs[jobID]; {
	case !ok:
	case a != nil:
		a.detached = true
	default:
		s.leaveTo(jobID)
		s.leaveIfIdle()
	}
}

// assign, deliver and leaveTo must be called with mu held.
func (s *session) assign(a dispatch.Assignment) {
	s.send(func(dst []byte) []byte {
		return wire.AppendAssigned(dst, a.JobID, a.Node, a.Attempt, a.AssignedAtMS)
	})
}

func (s *session) deliver(status *freeslot.JobStatus) {
	delete(s.jobs, status.ID)
	s.send(func(dst []byte) []byte { return wire.AppendResult(dst, status) })
}

func (s *session) leaveTo(jobID string) {
	delete(s.jobs, jobID)
	s.send(func(dst []byte) []byte { return wire.AppendDetached(dst, jobID) })
}

func (s *session) logInternal(operation, jobID string, err error) {
	s.handler.log.Error("session.request_failed",
		zap.String(logging.FieldSession, s.id),
		zap.String(logging.FieldTenant, s.principal.tenant),
		zap.String("operation", operation),
		zap.String(logging.FieldJob, jobID),
		zap.Error(err),
	)
}
