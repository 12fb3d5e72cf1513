package session

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// Handler serves the WebSocket endpoint. It is an http.Handler, ready when built.
type Handler struct {
	cfg        Config
	limits     wire.Limits
	dispatcher Dispatcher
	auth       Authenticator
	log        *zap.Logger
	sampled    *zap.Logger // for refusals: strangers can cause any number
	metrics    *metrics
	tracer     tracer

	// calls is the context of calls to the dispatcher; Stop ends it.
	calls     context.Context
	stopCalls context.CancelFunc
	draining  atomic.Bool

	socket   socket.Config
	sessions *socket.Group[*session]
	tenants  tenantPlaces
}

// tenantPlaces counts the sessions of each tenant.
type tenantPlaces struct {
	mu    sync.Mutex
	taken map[string]int
}

// take takes a place of a tenant. It returns false if the tenant has most already.
func (p *tenantPlaces) take(tenant string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[tenant] >= most {
		return false
	}
	p.taken[tenant]++
	return true
}

func (p *tenantPlaces) giveBack(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[tenant]--; p.taken[tenant] == 0 {
		delete(p.taken, tenant)
	}
}

// New makes a handler. It does no I/O. reg may be nil.
func New(
	cfg Config, d Dispatcher, auth Authenticator, logger *zap.Logger, reg prometheus.Registerer,
) (*Handler, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	calls, stopCalls := context.WithCancel(context.Background())
	m := newMetrics(reg)
	return &Handler{
		cfg: cfg, limits: cfg.limits(), dispatcher: d, auth: auth, log: logger, sampled: logging.Sampled(logger),
		metrics: m, tracer: newTracer(cfg.TracerProvider), calls: calls, stopCalls: stopCalls,
		socket: cfg.socket(m), sessions: socket.NewGroup[*session](), tenants: tenantPlaces{taken: make(map[string]int)},
	}, nil
}

// Sessions returns the number of open sessions.
func (h *Handler) Sessions() int { return h.sessions.Len() }

// ServeHTTP upgrades the request, and returns when the session has ended. A refused request gets an
// HTTP status and a JSON error body.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, batch, err := h.check(r)
	if err == nil {
		err = h.enter(who.Tenant)
	}
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer h.leave(who.Tenant)
	conn, acceptErr := socket.Accept(w, r, &h.socket)
	if acceptErr != nil {
		h.metrics.refused.WithLabelValues(string(freeslot.CodeInvalidArgument)).Inc()
		h.log.Debug("session.handshake_failed", zap.Error(acceptErr), zap.String(logging.FieldAddress, r.RemoteAddr))
		return
	}
	s := newSession(h, ulid.Make().String(), who, conn, batch)
	s.address = r.RemoteAddr
	h.log.Info("session.opened",
		zap.String(logging.FieldSession, s.id),
		zap.String(logging.FieldTenant, who.Tenant),
		zap.String("role", string(who.Role)),
		zap.Bool("batch", batch),
		zap.String(logging.FieldAddress, r.RemoteAddr),
	)
	h.sessions.Add(s)
	if h.draining.Load() { // Drain may have missed it
		s.drain(stopping)
	}
	s.run()
}

// Drain refuses new sessions and new submits, asks every client to go away, and waits until all
// have left or got the results of their jobs. If ctx ends first, it orders the remaining sessions
// to close, and the error says how many. The jobs go on in any case. Sessions may still be closing
// when Drain returns; Stop waits for them.
func (h *Handler) Drain(ctx context.Context) error {
	h.draining.Store(true)
	all := h.sessions.All()
	for _, s := range all {
		s.drain(stopping)
	}
	cut := socket.Await(ctx, all, socket.Stopping(closedDrainLimit))
	if cut > 0 {
		return fmt.Errorf("drain sessions: %d did not end in time: %w", cut, ctx.Err())
	}
	return nil
}

// Stop closes every session and waits for all goroutines. If ctx ends first, it cuts the
// connections. It tolerates a second call, and a missing Drain.
func (h *Handler) Stop(ctx context.Context) error {
	h.draining.Store(true)
	if err := h.sessions.Stop(ctx, socket.Stopping(closedStopped), h.stopCalls); err != nil {
		return fmt.Errorf("stop sessions: %w", err)
	}
	return nil
}

// enter takes a place for a session of a tenant.
func (h *Handler) enter(tenant string) *freeslot.Error {
	if h.draining.Load() { // Stop sets it too
		return endingError(stopping, "no new sessions")
	}
	if !h.tenants.take(tenant, h.cfg.MaxTenantSessions) {
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: refusedRetryAfter,
			Message: fmt.Sprintf("tenant %s has %d sessions here, which is its share", tenant, h.cfg.MaxTenantSessions),
		}
	}
	open, ok := h.sessions.Enter()
	if !ok {
		h.tenants.giveBack(tenant)
		return endingError(stopping, "no new sessions")
	}
	h.metrics.open.Inc()
	if open > h.cfg.MaxSessions {
		h.leave(tenant)
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: refusedRetryAfter,
			Message: fmt.Sprintf("the replica has %d sessions, which is its limit", h.cfg.MaxSessions),
		}
	}
	return nil
}

func (h *Handler) leave(tenant string) {
	h.tenants.giveBack(tenant)
	h.metrics.open.Dec()
	h.sessions.Leave()
}
