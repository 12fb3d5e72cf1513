package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
)

// refusedRetryAfter is the pause for agents that a full or stopping replica refuses: long enough to
// avoid a storm, short enough for a rolling restart.
const refusedRetryAfter = time.Second

// statuses holds the HTTP status of each code except internal.
var statuses = map[freeslot.Code]int{
	freeslot.CodeInvalidArgument:  http.StatusBadRequest,
	freeslot.CodePayloadTooLarge:  http.StatusRequestEntityTooLarge,
	freeslot.CodeUnauthenticated:  http.StatusUnauthorized,
	freeslot.CodePermissionDenied: http.StatusForbidden,
	freeslot.CodeNotFound:         http.StatusNotFound,
	freeslot.CodeOverloaded:       http.StatusServiceUnavailable,
	freeslot.CodeUnavailable:      http.StatusServiceUnavailable,
	frame.CodeSuperseded:          http.StatusConflict,
	frame.CodeUnknownNode:         http.StatusConflict,
	frame.CodeNodeInUse:           http.StatusConflict,
	frame.CodeStaleConnection:     http.StatusConflict,
}

// check makes the decisions that do not depend on the hello.
func (h *Handler) check(r *http.Request) (secret string, token Token, _ *freeslot.Error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return "", token, &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: "Upgrade", Message: "this is a WebSocket endpoint for agents, expected an upgrade to websocket"}
	}
	if r.Header.Get("Origin") != "" {
		return "", token, &freeslot.Error{Code: freeslot.CodePermissionDenied, Field: "Origin", Message: "pages of browsers may not connect: this endpoint is for agents"}
	}
	secret, token, err := h.authenticate(r)
	if err == nil && !offersProtocol(r) {
		err = &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: "Sec-WebSocket-Protocol", Message: "this endpoint speaks " + frame.Protocol + ", which the agent did not offer"}
	}
	return secret, token, err
}

// authenticate finds a request's token.
func (h *Handler) authenticate(r *http.Request) (secret string, token Token, _ *freeslot.Error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		if token, ok := h.cfg.Tokens.Find(strings.TrimSpace(secret)); ok {
			return strings.TrimSpace(secret), token, nil
		}
	}
	return "", Token{}, &freeslot.Error{
		Code: freeslot.CodeUnauthenticated, Field: "Authorization",
		Message: "expected Bearer and a token that is in the gateway's tokens file and has not expired",
	}
}

func offersProtocol(r *http.Request) bool {
	names := strings.Split(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",")
	return slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == frame.Protocol })
}

func stoppingError() *freeslot.Error {
	return &freeslot.Error{Code: freeslot.CodeUnavailable, RetryAfter: refusedRetryAfter, Message: "the replica is stopping"}
}

// refuse answers an HTTP request with the status that fits the error's code.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, token string, err *freeslot.Error) {
	h.noteRefusal(token, r.Header.Get(frame.NodeHeader), r.RemoteAddr, err)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	status, ok := statuses[err.Code]
	switch {
	case !ok:
		status = http.StatusInternalServerError
	case err.Code == freeslot.CodeUnauthenticated:
		header.Set("WWW-Authenticate", `Bearer realm="freeslot"`)
	case err.Field == "Upgrade":
		status = http.StatusUpgradeRequired
		header.Set("Upgrade", "websocket")
		header.Set("Connection", "Upgrade")
	}
	if err.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int((err.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(wire.AppendErrorBody(nil, err), '\n')) // the agent may be gone
}

func (h *Handler) noteRefusal(token, node, address string, err *freeslot.Error) {
	h.metrics.refused.WithLabelValues(string(err.Code)).Inc()
	h.logRefusal(token, node, address, err)
}

func (h *Handler) logRefusal(token, node, address string, err *freeslot.Error) {
	h.log.Warn("gateway.refused",
		zap.String("token", token),
		zap.String(logging.FieldNode, strings.ToValidUTF8(node[:min(len(node), freeslot.MaxNameLength)], "")),
		zap.String(logging.FieldAddress, address),
		zap.String("code", string(err.Code)),
		zap.String(logging.FieldReason, err.Message),
	)
}

// Sizes of a connection's buffers. net/http's have 4 KiB each, and most frames are small.
const (
	readBytes  = 1 << 10
	writeBytes = 2 << 10
)

// hijackWriter keeps the connection that the upgrade takes over. The WebSocket library can end it
// only after a close handshake of up to ten seconds.
type hijackWriter struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.conn = conn
	// If the agent has sent something before it has an answer, the connection keeps the large
	// reader.
	if err == nil && rw.Reader.Buffered() == 0 {
		rw = bufio.NewReadWriter(bufio.NewReaderSize(conn, readBytes), bufio.NewWriterSize(conn, writeBytes))
	}
	return conn, rw, err
}

// hello begins the session, or answers an agent that only asks. It returns the order to end the
// session, or nil if the session goes on.
func (s *session) hello(req *frame.Request) *order {
	h := s.handler
	s.late.Stop()
	defer s.greeted()
	if err := checkHello(req); err != nil {
		return s.refuse(req.Node, err, defectOrder(err.Message))
	}
	if !s.token.Names(req.Node) {
		err := &freeslot.Error{Code: freeslot.CodePermissionDenied, Field: "node", Message: fmt.Sprintf("token %s is not for node %s", s.token.Name, req.Node)}
		return s.refuse(req.Node, err, rightsOrder(err.Message))
	}
	if !req.Check {
		if err := h.admit(s, req); err != nil {
			return s.refuse(req.Node, err, awayOrder(err.Message))
		}
	}
	s.node, s.epoch, s.connection, s.version = req.Node, req.Epoch, req.Connection, req.Version
	s.cell = h.cfg.Cells(req.Node)
	s.initEnds()
	ctx, cancel := context.WithTimeout(s.life, callTimeout)
	defer cancel()
	if !req.Check {
		if s.hub = h.hub(s.cell); s.hub == nil {
			by := stoppingOrder(closedRefused)
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
		return &order{code: websocket.StatusNormalClosure, text: "the check is over", label: closedCheck, flush: true}
	}
	if err := h.begin(s, welcome); err != nil {
		by := stoppingOrder(closedRefused)
		return s.refuse(req.Node, err, &by)
	}
	kind := "first"
	if s.connection > 1 {
		kind = "reconnect"
	}
	h.metrics.connects.WithLabelValues(kind).Inc()
	h.log.Info("gateway.opened", append(s.fields(), zap.Int64("connection", s.connection), zap.String("version", s.version))...)
	s.checkRights() // the token's line may have gone before the keep-alive knew the session
	return nil
}

// refuse sends an error that ends the session, and returns by.
func (s *session) refuse(node string, err *freeslot.Error, by *order) *order {
	by.label = closedRefused
	s.handler.noteRefusal(s.token.Name, node, s.address, err)
	s.sendError(0, err)
	return by
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
		return freeslot.Invalid("connection", "is %d, expected the number of the connection in this epoch, from 1", req.Connection)
	case len(req.Version) > maxVersion:
		return freeslot.Invalid("version", "has %d bytes, expected at most %d", len(req.Version), maxVersion)
	}
	return nil
}

func (s *session) welcome(known *cell.NodeLink) *frame.Welcome {
	cfg := &s.handler.cfg
	w := &frame.Welcome{
		Protocol: frame.Protocol, Session: s.id, Replica: cfg.Replica, Version: cfg.Version,
		HeartbeatLimitMS: cfg.HeartbeatLimit.Milliseconds(), MaxFrameBytes: frame.MaxFrameBytes, InlineBytes: frame.InlineBytes,
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
