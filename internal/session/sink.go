package session

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// Assigned implements dispatch.Sink.
func (s *session) Assigned(a dispatch.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch held, ok := s.jobs[keyOf(a.JobID)]; {
	case !ok:
	case held != nil:
		held.assigned = a
	default:
		s.sendAssigned(a)
	}
}

// Progress implements dispatch.Sink.
func (s *session) Progress(jobID string, p freeslot.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch held, ok := s.jobs[keyOf(jobID)]; {
	case !ok:
	case held != nil:
		held.progress, held.id = p, jobID
	default:
		s.sendProgress(jobID, &p)
	}
}

// Result implements dispatch.Sink. A job that is not in jobs had its result already, or was
// detached.
func (s *session) Result(status freeslot.JobStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch held, ok := s.jobs[keyOf(status.ID)]; {
	case !ok:
	case held != nil:
		held.result = &status
	default:
		s.sendResult(&status)
		s.closeIfIdle()
	}
}

// Attached implements dispatch.Attacher. A session that attached before this one has lost the job
// again.
func (s *session) Attached(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.jobs[keyOf(jobID)]; held != nil {
		held.detached = false
	}
}

// Life implements dispatch.Leaver.
func (s *session) Life() context.Context { return s.life }

// Detached implements dispatch.Sink.
func (s *session) Detached(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch held, ok := s.jobs[keyOf(jobID)]; {
	case !ok:
	case held != nil:
		held.detached, held.id = true, jobID
	default:
		s.sendDetached(jobID)
		s.closeIfIdle()
	}
}

// The callers of sendAssigned, sendProgress, sendResult and sendDetached hold mu.
func (s *session) sendAssigned(a dispatch.Assignment) {
	if a.Attempt > 1 { // progress of an earlier attempt is no longer of use
		s.conn.DropLatest(a.JobID)
	}
	s.send(func(dst []byte) []byte {
		return wire.AppendAssigned(dst, a.JobID, a.Node, a.Attempt, a.AssignedAtMS)
	})
}

func (s *session) sendProgress(jobID string, p *freeslot.Progress) {
	switch s.conn.PutLatest(jobID, wire.AppendProgress(nil, jobID, p)) {
	case socket.Replaced:
		s.handler.metrics.progressReplaced.Inc()
	case socket.Dropped:
		s.handler.metrics.progressDropped.Inc()
	case socket.Queued:
	}
}

func (s *session) sendResult(status *freeslot.JobStatus) {
	delete(s.jobs, keyOf(status.ID))
	s.conn.DropLatest(status.ID)
	s.send(func(dst []byte) []byte { return wire.AppendResult(dst, status) })
}

func (s *session) sendDetached(jobID string) {
	delete(s.jobs, keyOf(jobID))
	s.conn.DropLatest(jobID)
	s.send(func(dst []byte) []byte { return wire.AppendDetached(dst, jobID) })
}
