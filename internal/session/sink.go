package session

import (
	"context"
	"strings"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
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
	progress freeslot.Progress
	result   *freeslot.JobStatus
	detached bool
	// ended is what an attach found of a job that has ended.
	ended *freeslot.JobStatus
	// id is the one by which clients know the job, once progress or detached came.
	id string
}

// keyOf is what is the same in all ids that a job has had in different cells.
func keyOf(jobID string) string {
	if _, rest, ok := strings.Cut(jobID, "-"); ok {
		return rest
	}
	return jobID
}

// Assigned implements dispatch.Sink.
func (s *session) Assigned(a dispatch.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch held, ok := s.jobs[keyOf(a.JobID)]; {
	case !ok:
	case held != nil:
		held.assigned = a
	default:
		s.assign(a)
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
		s.tell(jobID, &p)
	}
}

// Result implements dispatch.Sink. A job that the session does not wait for has had its
// result, or was detached.
func (s *session) Result(status freeslot.JobStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a, ok := s.jobs[keyOf(status.ID)]; {
	case !ok:
	case a != nil:
		a.result = &status
	default:
		s.deliver(&status)
		s.leaveIfIdle()
	}
}

// Attached implements dispatch.Attacher: who attached before us has lost the job again.
func (s *session) Attached(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.jobs[keyOf(jobID)]; a != nil {
		a.detached = false
	}
}

// Life implements dispatch.Leaver.
func (s *session) Life() context.Context { return s.life }

// Detached implements dispatch.Sink.
func (s *session) Detached(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a, ok := s.jobs[keyOf(jobID)]; {
	case !ok:
	case a != nil:
		a.detached, a.id = true, jobID
	default:
		s.leaveTo(jobID)
		s.leaveIfIdle()
	}
}

// assign, tell, deliver and leaveTo must be called with mu held.
func (s *session) assign(a dispatch.Assignment) {
	if a.Attempt > 1 { // what an earlier one told is of no use any more
		s.out.untell(a.JobID)
	}
	s.send(func(dst []byte) []byte {
		return wire.AppendAssigned(dst, a.JobID, a.Node, a.Attempt, a.AssignedAtMS)
	})
}

func (s *session) tell(jobID string, p *freeslot.Progress) {
	switch s.out.tell(jobID, wire.AppendProgress(nil, jobID, p)) {
	case newsReplaced:
		s.handler.metrics.progressReplaced.Inc()
	case newsDropped:
		s.handler.metrics.progressDropped.Inc()
	case newsQueued:
	}
}

func (s *session) deliver(status *freeslot.JobStatus) {
	delete(s.jobs, keyOf(status.ID))
	s.out.untell(status.ID)
	s.send(func(dst []byte) []byte { return wire.AppendResult(dst, status) })
}

func (s *session) leaveTo(jobID string) {
	delete(s.jobs, keyOf(jobID))
	s.out.untell(jobID)
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
