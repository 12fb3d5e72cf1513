package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/socket"
)

// busyRetryAfter is the pause for an agent with too many requests under way: about the time that
// one takes.
const busyRetryAfter = 10 * time.Millisecond

// maxRetryDelay is the longest pause before another attempt.
const maxRetryDelay = 365 * 24 * time.Hour

// handlers carry out the requests that have a goroutine each. Heartbeats, progress and ends of jobs
// share calls instead.
var handlers = map[frame.Type]func(*session, *frame.Request) (*frame.Answer, error){
	frame.TypeRegister:   (*session).register,
	frame.TypeSpec:       (*session).spec,
	frame.TypeDeregister: (*session).deregister,
}

// request is a message under way, with the bytes that it holds.
type request struct {
	*frame.Request
	size int
}

// joint holds the requests of a frame that go together.
type joint struct{ ends, progress []request }

// start starts a request. A complete or a progress only joins rest, which the caller starts at the
// frame's end. start returns the order to end the session, or nil if the session goes on.
func (s *session) start(message *frame.Request, rest *joint) *socket.Order {
	typ := message.Type
	handle := handlers[typ]
	switch {
	case typ == frame.TypeHello:
		return s.defect(freeslot.Invalid("type", "is hello, which was said before"))
	case handle == nil && typ != frame.TypeHeartbeat && typ != frame.TypeComplete && typ != frame.TypeProgress:
		return s.defect(freeslot.Invalid(
			"type", "is %.40q, expected register, heartbeat, complete, progress, spec or deregister", typ,
		))
	case message.ID == 0:
		return s.defect(freeslot.Invalid("id", "is 0 or missing, expected a number from 1"))
	}
	if typ == frame.TypeHeartbeat {
		s.startJoint(rest) // hold may wait
	}
	req := request{message, sizeOf(message)}
	switch {
	case !s.hold(req):
	case typ == frame.TypeHeartbeat:
		s.heartbeat(req)
	case typ == frame.TypeComplete:
		rest.ends = append(rest.ends, req)
	case typ == frame.TypeProgress:
		rest.progress = append(rest.progress, req)
	default:
		// This runs even if the session ends meanwhile, because the request was read.
		s.requests.Go(func() {
			answer, err := s.carryOut(message, handle)
			s.free(req) // before the answer: the agent may send the next request as soon as it has it
			s.answer(req, answer, err)
		})
	}
	return nil
}

// startJoint starts what a frame has brought so far.
func (s *session) startJoint(of *joint) {
	ends, progress := of.ends, of.progress
	*of = joint{}
	s.complete(ends)
	if len(progress) > 0 {
		s.requests.Go(func() { s.progress(progress) })
	}
}

// hold counts a request until free is called. It refuses what is beyond the session's bounds, and
// returns false. A heartbeat waits instead.
func (s *session) hold(req request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.requesting
	switch {
	case req.Type == frame.TypeHeartbeat:
		for s.beats >= maxBeats {
			s.freed.Wait()
		}
		s.beats++
	case n >= frame.MaxRequests || n > 0 && (s.bytes+req.size > maxRequestBytes || !s.owner.has(req.size)):
		s.handler.metrics.requests.WithLabelValues(string(req.Type), string(freeslot.CodeOverloaded)).Inc()
		s.sendError(req.ID, &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: busyRetryAfter,
			Message: fmt.Sprintf(
				"the session has %d requests of %d bytes under way, the limits are %d and %d, and %d for all sessions of the token",
				n, s.bytes, frame.MaxRequests, maxRequestBytes, bytesOfOwner,
			),
		})
		return false
	default:
		s.requesting++
	}
	s.bytes += req.size
	s.owner.bytes.Add(int64(req.size))
	return true
}

// free releases what a request holds.
func (s *session) free(req request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= req.size
	s.owner.bytes.Add(-int64(req.size))
	if req.Type == frame.TypeHeartbeat {
		s.beats--
		s.freed.Signal()
	} else {
		s.requesting--
	}
}

// sizeOf returns about how many bytes a request holds.
func sizeOf(req *frame.Request) int {
	const envelope, attempt = 1 << 10, 48
	size := envelope + len(req.Result) + len(req.Resources) + attempt*len(req.Running)
	for i := range req.Reports {
		size += attempt + len(req.Reports[i].Value)
	}
	if req.Error != nil {
		size += len(req.Error.Code) + len(req.Error.Message)
	}
	if req.Profile != nil {
		size += frame.MaxFrameBytes
	}
	return size
}

// answer sends the answer of a request, or its error. A heartbeat has sent its answer itself.
func (s *session) answer(req request, answer *frame.Answer, err error) {
	outcome := "ok"
	proved := req.Type == frame.TypeRegister || req.Type == frame.TypeHeartbeat
	if err != nil {
		refusal := s.asError(req.Type, err)
		outcome = string(refusal.Code)
		proved = proved && refusal.Code == freeslot.CodeUnavailable
		s.sendError(req.ID, refusal)
		s.endBy(refusal)
		if req.Type == frame.TypeRegister && refusal.Code != freeslot.CodeUnavailable {
			s.handler.logRefusal(s.token.Name, s.node, s.address, refusal)
		}
	} else if answer != nil {
		answer.ID = req.ID
		s.send(answer)
	}
	if proved {
		s.proved.Store(true)
	}
	s.handler.metrics.requests.WithLabelValues(string(req.Type), outcome).Inc()
}

func (s *session) carryOut(
	req *frame.Request, handle func(*session, *frame.Request) (*frame.Answer, error),
) (*frame.Answer, error) {
	if req.Type != frame.TypeRegister {
		if err := s.checkForeign(); err != nil {
			return nil, err
		}
	}
	answer, err := handle(s, req)
	if req.Type == frame.TypeRegister {
		s.noteForeign(err)
	}
	return answer, err
}

// checkForeign refuses to report, read or deregister for a node that lives under another token,
// because everyone can read the node's epoch.
func (s *session) checkForeign() error {
	if !s.foreign.Load() {
		return nil
	}
	// The agent may be the right one, with a token of another name. It must not take this for an
	// end.
	return &freeslot.Error{
		Code:    freeslot.CodeUnavailable,
		Message: cell.ErrNodeInUse.Error() + ": repeat the request when a heartbeat was answered",
	}
}

// noteForeign takes in what the outcome of a register or heartbeat tells: whether the node lives
// under another token.
func (s *session) noteForeign(err error) {
	if inUse := errors.Is(err, cell.ErrNodeInUse); err == nil || inUse {
		s.foreign.Store(inUse)
	}
}

// endBy ends the session after an error that no other request of the session can escape.
func (s *session) endBy(err *freeslot.Error) {
	switch err.Code {
	case frame.CodeSuperseded:
		s.End(socket.Order{Code: frame.CloseSuperseded, Text: err.Message, Label: closedSuperseded, Flush: true})
	case frame.CodeStaleConnection:
		s.End(socket.Order{Code: frame.CloseReplaced, Text: err.Message, Label: closedReplaced, Flush: true})
	case freeslot.CodeUnauthenticated:
		s.End(*rightsOrder(err.Message))
	}
}

// asError turns any error into one that the protocol can carry. If the cell did not answer, the
// error is unavailable, whatever it was: the request may have been carried out, so the agent must
// not take it for an answer.
func (s *session) asError(typ frame.Type, err error) *freeslot.Error {
	return s.handler.asError(string(typ), s.node, err)
}

func (h *Handler) asError(call, node string, err error) *freeslot.Error {
	coded, ok := errors.AsType[*freeslot.Error](err)
	switch {
	case ok:
		return coded
	case errors.Is(err, cell.ErrSuperseded):
		return &freeslot.Error{Code: frame.CodeSuperseded, Message: cell.ErrSuperseded.Error()}
	case errors.Is(err, cell.ErrUnknownNode):
		return &freeslot.Error{
			Code: frame.CodeUnknownNode, Message: "the node is not registered, or was silent for too long: register it",
		}
	case errors.Is(err, cell.ErrNodeInUse):
		return &freeslot.Error{Code: frame.CodeNodeInUse, Message: cell.ErrNodeInUse.Error()}
	case errors.Is(err, cell.ErrStaleConnection):
		return &freeslot.Error{Code: frame.CodeStaleConnection, Message: cell.ErrStaleConnection.Error()}
	}
	h.noteUnanswered(call, node, err)
	if _, refusal := script.Refusal(err); refusal != "" {
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "Redis refuses it: " + refusal}
	}
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, Message: "the store did not answer; it may have been carried out",
	}
}

func (h *Handler) noteUnanswered(call, node string, err error) {
	h.unanswered.Warn(call, zap.String("call", call), zap.String(logging.FieldNode, node), zap.Error(err))
}

func (s *session) register(req *frame.Request) (*frame.Answer, error) {
	if req.Profile == nil {
		return nil, freeslot.Invalid("profile", "is missing")
	}
	// The line may have changed since the hello.
	token, ok := s.handler.cfg.Tokens.Find(s.secret)
	if !ok {
		return nil, &freeslot.Error{
			Code: freeslot.CodeUnauthenticated, Message: fmt.Sprintf("token %s was removed or has expired", s.token.Name),
		}
	}
	if err := token.admits(s.certificate); err != nil {
		return nil, err
	}
	profile := *req.Profile
	profile.ID = s.node // whatever the agent says
	if err := profile.Validate("profile"); err != nil {
		return nil, err
	}
	if err := token.Check(&profile); err != nil {
		return nil, err
	}
	if req.Replaces != "" {
		if err := freeslot.ValidateName("replaces", req.Replaces); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(s.handler.calls, callTimeout)
	defer cancel()
	done, err := s.cell.RegisterLinked(ctx, profile, s.epoch, s.link(), req.Replaces)
	if err != nil {
		return nil, err
	}
	s.checked.Store(&token)
	return &frame.Answer{Type: frame.TypeRegistered, Lost: done.Lost}, nil
}

// completed returns the answer to a complete, in a frame or by HTTP.
func (h *Handler) completed(outcome cell.CompletionOutcome, begun []cell.Dispatch) *frame.Answer {
	if outcome == cell.CompletedStale {
		h.metrics.stale.WithLabelValues(string(frame.TypeComplete)).Inc()
	}
	answer := &frame.Answer{Type: frame.TypeCompleted, Outcome: string(outcome)}
	for i := range begun {
		answer.Begun = append(answer.Begun, delivery(&begun[i]))
	}
	return answer
}

func completion(node string, epoch cell.Epoch, req *frame.Request) (cell.Completion, error) {
	comp := cell.Completion{Node: node, Epoch: epoch, State: req.State, Result: req.Result, Error: req.Error}
	if req.Attempt == nil {
		return comp, freeslot.Invalid("attempt", "is missing")
	}
	comp.Attempt = cell.Attempt(*req.Attempt)
	switch req.State {
	case freeslot.StateSucceeded, freeslot.StateFailed, freeslot.StateCancelled:
	default:
		return comp, freeslot.Invalid("state", "is %.40q, expected succeeded, failed or cancelled", req.State)
	}
	switch req.Next {
	case "":
	case frame.NextRetry:
		comp.Next = cell.Retry
	case frame.NextHandBack:
		comp.Next = cell.HandBack
	default:
		return comp, freeslot.Invalid("next", "is %.40q, expected retry, hand_back or nothing", req.Next)
	}
	if req.RetryDelayMS < 0 || req.RetryDelayMS > maxRetryDelay.Milliseconds() {
		return comp, freeslot.Invalid(
			"retry_delay_ms", "is %d, expected 0 to %d", req.RetryDelayMS, maxRetryDelay.Milliseconds(),
		)
	}
	comp.RetryDelay = time.Duration(req.RetryDelayMS) * time.Millisecond
	return comp, nil
}

func (s *session) spec(req *frame.Request) (*frame.Answer, error) {
	ctx, cancel := context.WithTimeout(s.handler.calls, callTimeout)
	defer cancel()
	answer, err := s.handler.spec(ctx, s.cell, s.node, s.epoch, req.JobID)
	if err != nil {
		return nil, err
	}
	if text, err := frame.Append(nil, answer); err == nil && len(text) > frame.InlineBytes {
		return &frame.Answer{Type: frame.TypeSpec, Large: true}, nil
	}
	return answer, nil
}

// spec reads the spec of one of the node's jobs, for a frame or for HTTP.
func (h *Handler) spec(
	ctx context.Context, c Cell, node string, epoch cell.Epoch, jobID string,
) (*frame.Answer, error) {
	job, tenant, err := c.OwnedSpec(ctx, node, epoch, jobID)
	if freeslot.CodeOf(err) == freeslot.CodeNotFound {
		h.metrics.stale.WithLabelValues(string(frame.TypeSpec)).Inc()
	}
	if err != nil {
		return nil, err
	}
	return &frame.Answer{Type: frame.TypeSpec, Tenant: tenant, Job: job}, nil
}

func (s *session) deregister(*frame.Request) (*frame.Answer, error) {
	ctx, cancel := context.WithTimeout(s.handler.calls, callTimeout)
	defer cancel()
	lost, err := s.cell.Deregister(ctx, s.node, s.epoch)
	if err != nil {
		return nil, err
	}
	return &frame.Answer{Type: frame.TypeDeregistered, Lost: lost}, nil
}
