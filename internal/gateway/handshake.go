package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// refusedRetryAfter is the pause for agents that a full or stopping replica refuses: long enough to
// avoid a storm, short enough for a rolling restart.
const refusedRetryAfter = time.Second

// status returns the HTTP status of an error code.
func status(code freeslot.Code) int {
	switch code {
	case frame.CodeSuperseded, frame.CodeUnknownNode, frame.CodeNodeInUse, frame.CodeStaleConnection:
		return http.StatusConflict
	default:
		return wire.HandshakeStatus(code)
	}
}

// check makes the decisions that do not depend on the hello.
func (h *Handler) check(r *http.Request) (secret string, token Token, _ *freeslot.Error) {
	if !socket.IsUpgrade(r) {
		return "", token, &freeslot.Error{
			Code: freeslot.CodeInvalidArgument, Field: "Upgrade",
			Message: "this is a WebSocket endpoint for agents, expected an upgrade to websocket",
		}
	}
	if r.Header.Get("Origin") != "" {
		return "", token, &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: "Origin",
			Message: "pages of browsers may not connect: this endpoint is for agents",
		}
	}
	secret, token, err := h.authenticate(r)
	if err == nil && !socket.Offers(r, frame.Protocol) {
		err = &freeslot.Error{
			Code: freeslot.CodeInvalidArgument, Field: "Sec-WebSocket-Protocol",
			Message: "this endpoint speaks " + frame.Protocol + ", which the agent did not offer",
		}
	}
	return secret, token, err
}

// authenticate finds a request's token.
func (h *Handler) authenticate(r *http.Request) (secret string, token Token, _ *freeslot.Error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		if token, ok := h.cfg.Tokens.Find(strings.TrimSpace(secret)); ok {
			if err := token.admits(certificateNames(r.TLS)); err != nil {
				return "", token, err // a token without its certificate may be stolen, and proves nothing
			}
			listener.Prove(r.Context(), "node token "+token.Name) // no tenant has this name
			return strings.TrimSpace(secret), token, nil
		}
	}
	listener.Fail(r)
	return "", Token{}, &freeslot.Error{
		Code: freeslot.CodeUnauthenticated, Field: "Authorization",
		Message: "expected Bearer and a token that is in the gateway's tokens file and has not expired",
	}
}

func stoppingError() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeUnavailable, RetryAfter: refusedRetryAfter, Message: "the replica is stopping",
	}
}

// refuse answers an HTTP request with the status that fits the error's code.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, token string, err *freeslot.Error) {
	h.noteRefusal(token, r.Header.Get(frame.NodeHeader), r.RemoteAddr, err)
	socket.Refuse(w, status(err.Code), err)
}

func (h *Handler) noteRefusal(token, node, address string, err *freeslot.Error) {
	h.metrics.refused.WithLabelValues(string(err.Code)).Inc()
	h.logRefusal(token, node, address, err)
}

func (h *Handler) logRefusal(token, node, address string, err *freeslot.Error) {
	h.sampled.Warn("gateway.refused",
		zap.String("token", token),
		zap.String(logging.FieldNode, strings.ToValidUTF8(node[:min(len(node), freeslot.MaxNameLength)], "")),
		zap.String(logging.FieldAddress, address),
		zap.String("code", string(err.Code)),
		zap.String(logging.FieldReason, err.Message),
	)
}

// hello begins the session, or answers an agent that only asks. It returns the order to end the
// session, or nil if the session goes on.
func (s *session) hello(req *frame.Request) *socket.Order {
	h := s.handler
	s.late.Stop()
	defer s.greeted()
	if err := checkHello(req); err != nil {
		return s.refuse(req.Node, err, defectOrder(err.Message))
	}
	if !s.token.Names(req.Node) {
		err := &freeslot.Error{
			Code: freeslot.CodePermissionDenied, Field: "node",
			Message: fmt.Sprintf("token %s is not for node %s", s.token.Name, req.Node),
		}
		return s.refuse(req.Node, err, rightsOrder(err.Message))
	}
	s.node, s.epoch, s.connection, s.version = req.Node, req.Epoch, req.Connection, req.Version
	if !req.Check {
		if err := h.admit(s); err != nil {
			return s.refuse(req.Node, err, notAdmitted(err))
		}
		// From here on the session counts among the agents. A cell that does not answer must not delay
		// the agents of other cells in the line.
		s.greeted()
	}
	s.cell = h.cfg.Cells(req.Node)
	s.initEnds()
	ctx, cancel := context.WithTimeout(s.life, callTimeout)
	defer cancel()
	if !req.Check {
		if s.hub = h.hub(s.cell); s.hub == nil {
			by := socket.Stopping(closedRefused)
			return s.refuse(req.Node, stoppingError(), &by)
		}
		select {
		case <-s.hub.tried: // without this, the first agent might miss its first jobs
		case <-ctx.Done():
		}
	}
	known, err := s.cell.Link(ctx, req.Node)
	if err != nil {
		refusal := s.asError(frame.TypeHello, err)
		return s.refuse(req.Node, refusal, awayOrder(refusal.Message))
	}
	welcome := &frame.Answer{Type: frame.TypeWelcome, Welcome: s.welcome(&known)}
	s.foreign.Store(welcome.InUse && known.Epoch == s.epoch)
	if req.Check {
		welcome.Session = ""
		s.send(welcome)
		return &socket.Order{Code: websocket.StatusNormalClosure, Text: "the check is over", Label: closedCheck, Flush: true}
	}
	if by := s.checkKnown(ctx, &known); by != nil {
		return by
	}
	if err := h.begin(s, welcome); err != nil {
		by := socket.Stopping(closedRefused)
		return s.refuse(req.Node, err, &by)
	}
	s.reportBegin()
	s.checkRights() // the token's line may have gone before the keep-alive knew the session
	return nil
}

func (s *session) reportBegin() {
	kind := "first"
	if s.connection > 1 {
		kind = "reconnect"
	}
	s.handler.metrics.connects.WithLabelValues(kind).Inc()
	s.handler.log.Info(
		"gateway.opened", append(s.fields(), zap.Int64("connection", s.connection), zap.String("version", s.version))...,
	)
}

// refuse sends an error that ends the session, and returns by.
func (s *session) refuse(node string, err *freeslot.Error, by *socket.Order) *socket.Order {
	by.Label = closedRefused
	s.handler.noteRefusal(s.token.Name, node, s.address, err)
	s.sendError(0, err)
	return by
}

// notAdmitted returns the order for a session that admit has refused.
func notAdmitted(err *freeslot.Error) *socket.Order {
	by := *awayOrder(err.Message)
	switch err.Code {
	case frame.CodeStaleConnection:
		by = replacedOrder()
	case freeslot.CodeUnavailable:
		by = socket.Stopping(closedRefused)
	}
	return &by
}

func checkHello(req *frame.Request) *freeslot.Error {
	if req.Type != frame.TypeHello {
		return freeslot.Invalid("type", "is %.40q, expected hello as the first message", req.Type)
	}
	for field, name := range map[string]string{"node": req.Node, "epoch": req.Epoch} {
		if err := freeslot.ValidateName(field, name); err != nil {
			return wire.AsError(err)
		}
	}
	switch {
	case req.Epoch == cell.ImportEpoch:
		return freeslot.Invalid("epoch", "is %q, which is for nodes without an agent", req.Epoch)
	case req.Connection < 1:
		return freeslot.Invalid(
			"connection", "is %d, expected the number of the connection in this epoch, from 1", req.Connection,
		)
	case len(req.Version) > maxVersion:
		return freeslot.Invalid("version", "has %d bytes, expected at most %d", len(req.Version), maxVersion)
	}
	return nil
}

func (s *session) welcome(known *cell.NodeLink) *frame.Welcome {
	cfg := &s.handler.cfg
	w := &frame.Welcome{
		Protocol: frame.Protocol, Session: s.id, Replica: cfg.Replica, Version: cfg.Version,
		HeartbeatLimitMS: cfg.HeartbeatLimit.Milliseconds(), MaxFrameBytes: frame.MaxFrameBytes,
		InlineBytes: frame.InlineBytes,
		MaxRequests: frame.MaxRequests, MaxSlots: frame.MaxSlots, MaxAttempts: frame.MaxAttempts,
		Allows: s.token.Allows(),
	}
	imported := known.Epoch == "" || known.Epoch == cell.ImportEpoch
	w.InUse = !imported && known.Alive && known.Link.Token != s.token.Name
	if !w.InUse {
		w.Replaces = known.Epoch
	}
	return w
}
