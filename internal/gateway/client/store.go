package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/loopback"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// queueSpare is the number of deliveries, such as cancels, that may wait in addition to two for
	// each slot.
	queueSpare = 256
	// bulkAtOnce bounds the HTTP requests under way: heartbeats share the line with them.
	bulkAtOnce = 2
)

// Store is the store of a node that reaches Redis through a replica's gateway. It keeps one
// connection, by which everything goes that is not too large, and replaces it when it ends. Only
// the current connection counts: whatever comes by a former one is void.
//
// It must give the worker the same order that Redis gives: the answer to a heartbeat comes behind
// the deliveries that Redis wrote before it. The gateway sends them in this order. Heartbeat keeps
// it, because it returns once the worker has taken in the deliveries that came before the answer.
// Otherwise a duplicate in the queue could be offered when the ledger has just forgotten the
// attempt, and the attempt would start again.
type Store struct {
	cfg     Config
	log     *zap.Logger
	metrics *Metrics
	addrs   []*url.URL
	// transport serves the connection and the bulk requests. It speaks HTTP/1.1 only: HTTP/2 has no
	// upgrades.
	transport *http.Transport
	bulk      chan struct{} // holds a token for each HTTP request under way

	loops    sync.WaitGroup
	endLoops context.CancelFunc
	arrival  chan struct{} // holds a token if the queue has grown
	settled  chan struct{} // holds a token if done has grown
	// dials is the number of the last connection. rests holds the time until which an address is
	// not tried. They and dialTimeout belong to the loop that dials.
	dials       int64
	rests       map[*url.URL]time.Time
	dialTimeout time.Duration

	mu      sync.Mutex  // guards the rest
	current *connection // nil if there is none
	// candidate becomes the current connection if Redis answers a heartbeat through it; nil if
	// there is none.
	candidate *connection
	lastBeat  frame.Request // the last heartbeat
	changed   chan struct{} // closed and replaced when current or fatal changes
	fatal     error         // why no more connections will come
	// replaces is the epoch that the next registration may take over. Until the node is registered
	// it is the epoch that the last welcome named; later the node may only replace its own.
	replaces   cell.Epoch
	registered bool
	// queue holds the deliveries that Dispatches has not returned, at most queueLimit of them.
	// Further ones are dropped, and a heartbeat finds them.
	queue      []cell.Dispatch
	queueLimit int
	// arrived counts the deliveries that were queued. taken counts those that Dispatches has
	// returned. done counts those that an earlier call of Dispatches returned: the worker has taken
	// them in.
	arrived, taken, done uint64
}

// New makes a store. It does no I/O, except that it reads the certificates.
func New(cfg Config, logger *zap.Logger, metrics *Metrics) (*Store, error) {
	addrs, err := parseAddresses(cfg.Gateway)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(&cfg)
	if err != nil {
		return nil, err
	}
	return &Store{
		cfg: cfg, log: logger.With(zap.String(logging.FieldNode, cfg.Node)), metrics: metrics,
		addrs: addrs, transport: transport, bulk: make(chan struct{}, bulkAtOnce),
		arrival: make(chan struct{}, 1), settled: make(chan struct{}, 1), changed: make(chan struct{}),
		queueLimit: queueSpare, dialTimeout: firstDialTimeout, rests: map[*url.URL]time.Time{},
	}, nil
}

// Start connects to one of the gateways. It tries each once.
func (s *Store) Start(ctx context.Context) error {
	if plain := loopback.Plain(s.cfg.Gateway); plain != "" && !s.cfg.Insecure {
		s.log.Warn(
			"gateway.plain", zap.String("gateway", plain),
			zap.String(logging.FieldReason,
				"the node's token goes there in the clear: use wss://, or gateway_insecure where that way is private"),
		)
	}
	conn, err := s.dialAny(ctx, false)
	if err != nil {
		s.transport.CloseIdleConnections()
		return err
	}
	s.log.Info("gateway.connected", conn.fields()...)
	if limit := conn.limit(); 2*s.cfg.HeartbeatInterval > limit {
		s.log.Warn("gateway.heartbeat_interval_long", zap.Duration("heartbeat_interval", s.cfg.HeartbeatInterval),
			zap.Duration("heartbeat_limit", limit),
			zap.String(logging.FieldReason, "one late heartbeat can cost the node its jobs"))
	}
	loops, end := context.WithCancel(context.Background())
	s.endLoops = end
	s.adopt(conn, true)
	s.loops.Go(func() { s.connect(loops, conn) })
	return nil
}

// Stop says goodbye and waits for everything to end. Once ctx has ended, it cuts the connection
// without a goodbye.
func (s *Store) Stop(ctx context.Context) error {
	s.endLoops()
	s.mu.Lock()
	conn := s.current
	s.end(cell.ErrStopped)
	s.mu.Unlock()
	if conn != nil {
		conn.leave()
		defer context.AfterFunc(ctx, func() { conn.cut(ctx.Err()) })()
	}
	s.loops.Wait()
	s.transport.CloseIdleConnections()
	return nil
}

// connected returns the current connection, nil if there is none, and why none will come.
func (s *Store) connected() (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal != nil {
		return nil, s.fatal
	}
	return s.current, nil
}

// connection waits for the current connection. It returns ErrNotSent if there was none before ctx
// ended.
func (s *Store) connection(ctx context.Context) (*connection, error) {
	for {
		s.mu.Lock()
		conn, changed, fatal := s.current, s.changed, s.fatal
		s.mu.Unlock()
		switch {
		case fatal != nil:
			return nil, fatal
		case conn != nil:
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no gateway is connected: %w", cell.ErrNotSent, ctx.Err())
		}
	}
}

// adopt makes conn the current connection and starts it. The former one, if any, is void from then
// on. A heartbeat through the new one brings what was missed meanwhile. adopt returns false if no
// more connections are wanted.
func (s *Store) adopt(conn *connection, first bool) bool {
	s.mu.Lock()
	if s.fatal != nil {
		s.mu.Unlock()
		_ = conn.socket.CloseNow()
		return false
	}
	s.switchTo(conn)
	s.mu.Unlock()
	conn.start()
	if !first {
		s.cfg.Beat()
	}
	return true
}

// drop records that nothing more comes by conn.
func (s *Store) drop(conn *connection, superseded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn.lose()
	if s.current != conn {
		return
	}
	s.current = nil
	s.metrics.connected.Set(0)
	if superseded {
		s.end(cell.ErrSuperseded)
		return
	}
	s.announce()
}

// end makes every call return the error, from now on. The caller holds mu.
func (s *Store) end(fatal error) {
	if s.fatal == nil {
		s.fatal = fatal
	}
	s.announce()
	notify(s.arrival)
}

// announce wakes the goroutines that wait for a connection. The caller holds mu.
func (s *Store) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Check connects to one of the gateways, asks what the token may do, and leaves. It changes
// nothing, and takes the place of Start.
func (s *Store) Check(ctx context.Context) (*frame.Welcome, error) {
	defer s.transport.CloseIdleConnections()
	conn, err := s.dialAny(ctx, true)
	if err != nil {
		return nil, err
	}
	_ = conn.socket.Close(websocket.StatusNormalClosure, "")
	return &conn.welcome, nil
}

// Current returns the host of the gateway that the node is connected to, empty if there is none,
// and the number of the connection: how often the node had dialled by then.
func (s *Store) Current() (host string, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return "", 0
	}
	return s.current.url.Host, s.current.number
}

// notify puts a token into a channel with room for one, unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
