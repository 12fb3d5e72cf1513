package gateway

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
)

// Handler serves agents. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics
	sampled *zap.Logger // for refusals: strangers can cause any number
	// unanswered logs that cells did not answer.
	unanswered *logging.Repeated

	// calls is the context of the hubs and of calls to cells; Stop ends it.
	calls     context.Context
	stopCalls context.CancelFunc

	socket socket.Config
	// open counts the HTTP requests under way and the sessions, and knows the sessions.
	open *socket.Group[*session]

	mu sync.Mutex // guards the fields that follow; taken before a connection's
	// pending counts the connections whose agents have not said hello; agents counts the others.
	pending, agents int
	line            list.List // of handshakes that wait for a place among the pending
	// owners holds what has connections or requests, by the name of its tokens.
	owners map[string]*owner
	// bulking counts the requests of bulk.go under way; bulks counts them by node, for nodes that
	// have any.
	bulking int
	bulks   map[string]int
	// live holds the sessions with a welcome, by id. nodes holds the ones that have or had a place
	// among the agents, by node.
	live  map[string]*session
	nodes map[string][]*session
	// hubs holds a hub for each cell that has, or had, sessions; nil once they are stopped.
	hubs     map[Cell]*hub
	draining bool // no new sessions begin
	keeping  bool // keepAlive is running

	checking atomic.Bool // checkProfiles is running

	running sync.WaitGroup // waits for the hubs, keepAlive and its pings
}

// New makes a handler; it starts nothing. reg may be nil.
func New(cfg Config, log *zap.Logger, reg prometheus.Registerer) (*Handler, error) {
	cfg.PingInterval = cmp.Or(cfg.PingInterval, DefaultPingInterval)
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	calls, stopCalls := context.WithCancel(context.Background())
	m := newMetrics(reg, cfg.Tokens)
	cfg.Tokens.Register(reg)
	return &Handler{
		cfg: cfg, log: log, sampled: logging.Sampled(log), metrics: m,
		unanswered: logging.NewRepeated(log, "gateway.unanswered"),
		calls:      calls, stopCalls: stopCalls, socket: socketConfig(m), open: socket.NewGroup[*session](),
		owners: map[string]*owner{}, bulks: map[string]int{},
		live: map[string]*session{}, nodes: map[string][]*session{}, hubs: map[Cell]*hub{},
	}, nil
}

// ServeHTTP serves frame.Path, frame.CompletePath and frame.SpecPath, and answers 404 elsewhere. A
// refused request gets an HTTP status and a JSON error body. Stop waits for the sessions of agents.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.open.Enter(); !ok {
		h.refuse(w, r, "", stoppingError())
		return
	}
	defer h.open.Leave()
	switch r.URL.Path {
	case frame.Path:
		h.serveAgent(w, r)
	case frame.CompletePath, frame.SpecPath:
		h.serveBulk(w, r)
	default:
		h.refuse(
			w, r, "",
			&freeslot.Error{Code: freeslot.CodeNotFound, Message: fmt.Sprintf("there is nothing at %.80q", r.URL.Path)},
		)
	}
}

func (h *Handler) serveAgent(w http.ResponseWriter, r *http.Request) {
	secret, token, err := h.check(r)
	if err != nil {
		h.refuse(w, r, token.Name, err)
		return
	}
	by := h.use(token.Name)
	if err := h.takePending(r.Context(), by); err != nil { // strangers, whose refusals may wait, take no place
		h.leave(by)
		h.refuse(w, r, token.Name, err)
		return
	}
	greeted := sync.OnceFunc(func() { h.leavePending(by) })
	conn, acceptErr := socket.Accept(w, r, &h.socket)
	if acceptErr != nil {
		greeted()
		h.leave(by)
		h.metrics.refused.WithLabelValues(string(freeslot.CodeInvalidArgument)).Inc()
		h.log.Debug("gateway.handshake_failed", zap.Error(acceptErr), zap.String(logging.FieldAddress, r.RemoteAddr))
		return
	}
	s := newSession(h, conn)
	s.id, s.secret, s.token, s.owner, s.address, s.greeted = ulid.Make().String(), secret, token, by, r.RemoteAddr, greeted
	s.certificate = certificateNames(r.TLS)
	h.open.EnterAgain()
	h.open.Add(s)
	// On another goroutine, so that the session keeps neither the request nor the stack that served
	// it.
	go func() {
		defer h.open.Leave()
		defer h.leave(by)
		defer greeted()
		s.run()
	}()
}

// Drain refuses new sessions and asks all agents to go elsewhere, one by one within half of the
// time until ctx ends. It waits until they have gone. If ctx ends first, it orders the remaining
// sessions to close, and the error says how many. Stop waits for their end.
func (h *Handler) Drain(ctx context.Context) error {
	h.mu.Lock()
	h.closeLine()
	all := slices.Collect(maps.Values(h.live))
	h.mu.Unlock()
	pause := drainPause
	if end, ok := ctx.Deadline(); ok && len(all) > 0 {
		pause = min(pause, time.Until(end)/2/time.Duration(len(all)))
	}
	begin := time.Now()
	for i, s := range all {
		// By the clock, because with many agents the pauses are shorter than a timer's delay.
		wait(ctx, time.Until(begin.Add(time.Duration(i)*pause)))
		s.send(&frame.Answer{Type: frame.TypeGoaway, Reason: "the replica is stopping"})
	}
	cut := socket.Await(ctx, all, socket.Stopping(closedDrained))
	if cut > 0 {
		return fmt.Errorf("drain agents: %d did not leave in time: %w", cut, ctx.Err())
	}
	return nil
}

// Stop ends all sessions, waits for the requests that they run, and deletes the gateway's streams.
// If ctx ends first, it cuts the connections. It tolerates a second call, and a missing Drain.
func (h *Handler) Stop(ctx context.Context) error {
	h.mu.Lock()
	h.closeLine()
	h.mu.Unlock()
	err := h.open.Stop(ctx, socket.Stopping(closedStopped), h.stopCalls)
	if err != nil {
		err = fmt.Errorf("stop gateway: %w", err)
	}
	h.stopHubs(ctx)
	return err
}

// admit takes one of the places for agents, which unregister gives back. Of one node it ends the
// oldest session if there would be too many. In a full replica it ends all former sessions of the
// node: their connections may have broken in silence, and the keep-alive would find that too late
// for the node. While there is room they go on, because an agent that moves keeps its session until
// the next one has answered.
func (h *Handler) admit(s *session) *freeslot.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return stoppingError()
	}
	older, all := h.formers(s)
	if all >= sessionsOfNode {
		if len(older) == 0 {
			return &freeslot.Error{Code: frame.CodeStaleConnection, Message: cell.ErrStaleConnection.Error()}
		}
		h.dismiss(older[0], replacedOrder())
		older = older[1:]
	}
	if h.agents >= h.cfg.MaxAgents {
		for _, former := range older {
			h.dismiss(former, replacedOrder())
		}
	}
	if h.agents >= h.cfg.MaxAgents {
		h.makeRoom(s.owner)
	}
	if h.agents >= h.cfg.MaxAgents {
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: refusedRetryAfter,
			Message: fmt.Sprintf("the replica has %d agents, which is its limit", h.cfg.MaxAgents),
		}
	}
	h.agents++
	s.owner.agents++
	s.admitted = true
	h.nodes[s.node] = append(h.nodes[s.node], s)
	h.metrics.agents.Set(float64(h.agents))
	return nil
}

// begin sends the welcome and makes s visible to Drain and held, unless Drain was called. So no
// goaway comes before a welcome.
func (h *Handler) begin(s *session, welcome *frame.Answer) *freeslot.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return stoppingError()
	}
	h.live[s.id] = s
	s.send(welcome)
	if !h.keeping {
		h.keeping = true
		h.running.Go(h.keepAlive)
	}
	return nil
}

func (h *Handler) unregister(s *session) {
	h.open.Remove(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live, s.id)
	own := slices.DeleteFunc(h.nodes[s.node], func(other *session) bool { return other == s })
	if len(own) == 0 {
		delete(h.nodes, s.node)
	} else {
		h.nodes[s.node] = own
	}
	if s.admitted {
		h.agents--
		s.owner.agents--
		h.metrics.agents.Set(float64(h.agents))
	}
}

// held finds a session of this replica. It returns its agent's epoch, and its token.
func (h *Handler) held(node, session string) (epoch string, token Token, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.live[session]
	if s == nil || s.node != node || s.foreign.Load() {
		return "", Token{}, false
	}
	return s.epoch, s.token, true
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
