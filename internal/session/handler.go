package session

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
)

// refusedRetryAfter is what clients are told that a full or stopping replica
// turns away: long enough not to be a storm, short enough for a rolling restart.
const refusedRetryAfter = time.Second

// principal is who a client is.
type principal struct {
	tenant   string
	operator bool
}

// Handler serves the WebSocket endpoint. It is an http.Handler, ready when built.
type Handler struct {
	cfg        Config
	limits     wire.Limits
	dispatcher Dispatcher
	auth       Authenticator
	log        *zap.Logger
	metrics    *metrics
	tracer     tracer

	// calls is the context of calls to the dispatcher; Stop ends it.
	calls     context.Context
	stopCalls context.CancelFunc
	draining  atomic.Bool

	mu sync.Mutex // guards what follows
	// open counts the sessions and the handshakes under way.
	open     int
	sessions map[*session]struct{}
	// idle is closed once Stop was called and open is 0.
	idle     chan struct{}
	stopping bool
}

// New makes a handler. It does no I/O. reg may be nil.
func New(cfg Config, d Dispatcher, auth Authenticator, logger *zap.Logger, reg prometheus.Registerer) (*Handler, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	calls, stopCalls := context.WithCancel(context.Background())
	return &Handler{
		cfg: cfg, limits: cfg.limits(), dispatcher: d, auth: auth, log: logger,
		metrics: newMetrics(reg), tracer: newTracer(cfg.TracerProvider),
		calls: calls, stopCalls: stopCalls,
		sessions: map[*session]struct{}{}, idle: make(chan struct{}),
	}, nil
}

// Sessions is the number of open sessions.
func (h *Handler) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// ServeHTTP upgrades the request and returns when the session has ended. What is
// refused gets an HTTP status and a JSON error body instead.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, batch, err := h.check(r)
	if err == nil {
		err = h.enter()
	}
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer h.leave()
	hijacked := &hijackWriter{ResponseWriter: w}
	conn, acceptErr := websocket.Accept(hijacked, r, &websocket.AcceptOptions{
		Subprotocols: []string{wire.Protocol},
		// check has done it, with an answer in JSON.
		InsecureSkipVerify: true,
	})
	if acceptErr != nil {
		// Accept has answered.
		h.metrics.refused.WithLabelValues(string(freeslot.CodeInvalidArgument)).Inc()
		h.log.Debug("session.handshake_failed", zap.Error(acceptErr), zap.String(logging.FieldAddress, r.RemoteAddr))
		return
	}
	s := newSession(h, ulid.Make().String(), who, conn, hijacked.conn, batch)
	h.log.Info("session.opened",
		zap.String(logging.FieldSession, s.id),
		zap.String(logging.FieldTenant, who.tenant),
		zap.Bool("operator", who.operator),
		zap.Bool("batch", batch),
		zap.String(logging.FieldAddress, r.RemoteAddr),
	)
	if h.register(s) {
		s.drain()
	}
	s.run()
}

// Drain refuses new sessions and new submits, tells every client to go away, and
// waits until all have left or got the results of their jobs. When ctx ends first
// the remaining sessions are ordered to close and the error says how many. The
// jobs go on in any case. Sessions may still be closing when Drain returns; Stop
// waits for them.
func (h *Handler) Drain(ctx context.Context) error {
	h.draining.Store(true)
	all := h.snapshot()
	for _, s := range all {
		s.drain()
	}
	cut := 0
	for _, s := range all {
		select {
		case <-s.done:
			continue
		default:
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			s.end(order{code: websocket.StatusGoingAway, text: "the replica is stopping", label: closedDrainLimit, flush: true})
			cut++
		}
	}
	if cut > 0 {
		return fmt.Errorf("drain sessions: %d did not end in time: %w", cut, ctx.Err())
	}
	return nil
}

// Stop closes every session and waits for all goroutines. When ctx ends first
// the connections are cut. It tolerates being called twice, and without Drain.
func (h *Handler) Stop(ctx context.Context) error {
	h.draining.Store(true)
	h.mu.Lock()
	if !h.stopping {
		h.stopping = true
		if h.open == 0 {
			close(h.idle)
		}
	}
	h.mu.Unlock()
	for _, s := range h.snapshot() {
		s.end(order{code: websocket.StatusGoingAway, text: "the replica is stopping", label: closedStopped, flush: true})
	}
	select {
	case <-h.idle:
		h.stopCalls()
		return nil
	case <-ctx.Done():
	}
	h.stopCalls()
	for _, s := range h.snapshot() {
		s.cut()
	}
	return fmt.Errorf("stop sessions: %w", ctx.Err())
}

func (h *Handler) snapshot() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*session, 0, len(h.sessions))
	for s := range h.sessions {
		all = append(all, s)
	}
	return all
}

// check decides on a request all that can be decided without a place.
func (h *Handler) check(r *http.Request) (who principal, batch bool, _ *freeslot.Error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return who, false, &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: "Upgrade", Message: "this is a WebSocket endpoint, expected an upgrade to websocket"}
	}
	if err := h.checkOrigin(r); err != nil {
		return who, false, err
	}
	var err error
	if who.tenant, who.operator, err = h.auth.Authenticate(r); err != nil {
		return who, false, wire.AsError(err)
	}
	if err := checkSubprotocol(r); err != nil {
		return who, false, err
	}
	switch frames := r.URL.Query().Get("frames"); frames {
	case "", "single":
	case "batch":
		batch = true
	default:
		return who, false, freeslot.Invalid("frames", "is %.40q, expected single or batch", frames)
	}
	return who, batch, nil
}

// checkOrigin keeps pages of other sites from using the credentials of whoever
// looks at them. Clients that are not browsers send no origin.
func (h *Handler) checkOrigin(r *http.Request) *freeslot.Error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host != "" {
		if strings.EqualFold(u.Host, r.Host) {
			return nil
		}
		for _, pattern := range h.cfg.AllowedOrigins {
			target := u.Host
			if strings.Contains(pattern, "://") {
				target = u.Scheme + "://" + u.Host
			}
			if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(target)); ok && err == nil {
				return nil
			}
		}
	}
	return &freeslot.Error{Code: freeslot.CodePermissionDenied, Field: "Origin", Message: fmt.Sprintf("pages of %.80q may not connect; see allowed_origins in the replica's configuration", origin)}
}

// checkSubprotocol refuses a client that names subprotocols and not ours: it
// would not understand us. One that names none is taken at its word.
func checkSubprotocol(r *http.Request) *freeslot.Error {
	offered := r.Header.Values("Sec-WebSocket-Protocol")
	if len(offered) == 0 {
		return nil
	}
	for name := range strings.SplitSeq(strings.Join(offered, ","), ",") {
		if strings.EqualFold(strings.TrimSpace(name), wire.Protocol) {
			return nil
		}
	}
	return &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: "Sec-WebSocket-Protocol", Message: "this endpoint speaks " + wire.Protocol + ", which the client did not offer"}
}

// enter takes a place for a session.
func (h *Handler) enter() *freeslot.Error {
	if h.draining.Load() {
		return stoppingError("no new sessions")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopping:
		return stoppingError("no new sessions")
	case h.open >= h.cfg.MaxSessions:
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: refusedRetryAfter,
			Message: fmt.Sprintf("the replica has %d sessions, which is its limit", h.cfg.MaxSessions),
		}
	}
	h.open++
	h.metrics.open.Set(float64(h.open))
	return nil
}

func stoppingError(consequence string) *freeslot.Error {
	return &freeslot.Error{Code: freeslot.CodeUnavailable, RetryAfter: refusedRetryAfter, Message: "the replica is stopping: " + consequence}
}

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.metrics.open.Set(float64(h.open))
	if h.stopping && h.open == 0 {
		close(h.idle)
	}
}

// register makes s visible to Drain and Stop. It returns true when one of them
// was called already, and s may have been missed.
func (h *Handler) register(s *session) bool {
	h.mu.Lock()
	h.sessions[s] = struct{}{}
	stopping := h.stopping
	h.mu.Unlock()
	if stopping {
		s.end(order{code: websocket.StatusGoingAway, text: "the replica is stopping", label: closedStopped, flush: true})
	}
	return h.draining.Load()
}

func (h *Handler) unregister(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
}

// refuse answers with the HTTP status that fits the error's code.
func (h *Handler) refuse(w http.ResponseWriter, err *freeslot.Error) {
	h.metrics.refused.WithLabelValues(string(err.Code)).Inc()
	header := w.Header()
	header.Set("Content-Type", "application/json")
	status := http.StatusInternalServerError
	switch err.Code {
	case freeslot.CodeInvalidArgument:
		status = http.StatusBadRequest
		if err.Field == "Upgrade" {
			status = http.StatusUpgradeRequired
			header.Set("Upgrade", "websocket")
			header.Set("Connection", "Upgrade")
		}
	case freeslot.CodeUnauthenticated:
		status = http.StatusUnauthorized
		header.Set("WWW-Authenticate", `Bearer realm="freeslot"`)
	case freeslot.CodePermissionDenied:
		status = http.StatusForbidden
	case freeslot.CodeOverloaded, freeslot.CodeRateLimited, freeslot.CodeUnavailable:
		status = http.StatusServiceUnavailable
	}
	if err.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int((err.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(status)
	// The client may be gone; it learns nothing then either way.
	_, _ = w.Write(append(wire.AppendErrorBody(nil, err), '\n'))
}

// hijackWriter keeps the connection that the upgrade takes over: the WebSocket
// library can end it only after a close handshake of up to ten seconds.
type hijackWriter struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.conn = conn
	return conn, rw, err
}
