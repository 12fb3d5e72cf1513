package session

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/wire"
)

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

	mu sync.Mutex // guards the fields that follow
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

// Sessions returns the number of open sessions.
func (h *Handler) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// ServeHTTP upgrades the request, and returns when the session has ended. A refused request gets an
// HTTP status and a JSON error body.
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
		// check has verified the origin, and answers in JSON.
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

// Drain refuses new sessions and new submits, asks every client to go away, and waits until all
// have left or got the results of their jobs. If ctx ends first, it orders the remaining sessions
// to close, and the error says how many. The jobs go on in any case. Sessions may still be closing
// when Drain returns; Stop waits for them.
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
			s.end(stoppingOrder(closedDrainLimit))
			cut++
		}
	}
	if cut > 0 {
		return fmt.Errorf("drain sessions: %d did not end in time: %w", cut, ctx.Err())
	}
	return nil
}

// Stop closes every session and waits for all goroutines. If ctx ends first, it cuts the
// connections. It tolerates a second call, and a missing Drain.
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
		s.end(stoppingOrder(closedStopped))
	}
	var err error
	select {
	case <-h.idle:
	case <-ctx.Done():
		err = fmt.Errorf("stop sessions: %w", ctx.Err())
	}
	h.stopCalls()
	if err != nil {
		for _, s := range h.snapshot() {
			s.cut()
		}
	}
	return err
}

func (h *Handler) snapshot() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.sessions))
}

// enter takes a place for a session.
func (h *Handler) enter() *freeslot.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining.Load(): // Stop sets it too
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

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.metrics.open.Set(float64(h.open))
	if h.stopping && h.open == 0 {
		close(h.idle)
	}
}

// register makes s visible to Drain and Stop. It returns true if one of them was called already,
// and may have missed s.
func (h *Handler) register(s *session) bool {
	h.mu.Lock()
	h.sessions[s] = struct{}{}
	stopping := h.stopping
	h.mu.Unlock()
	if stopping {
		s.end(stoppingOrder(closedStopped))
	}
	return h.draining.Load()
}

func (h *Handler) unregister(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
}
