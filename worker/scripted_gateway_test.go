package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// pipes are the listeners of a network in memory, by host. It works in virtual time.
type pipes struct {
	mu        sync.Mutex // guards the rest
	listeners map[string]*pipeListener
	silent    map[string]bool // hosts that answer no dial
	open      []*pipeConn     // those that were dialled, some of them closed
	dialled   int             // how often
}

// pipeConn is the agent's end of a connection.
type pipeConn struct {
	net.Conn
	host   string
	delay  atomic.Int64  // of what is read, in nanoseconds
	frozen chan struct{} // closed: nothing is read any more
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex // guards the rest
	mute bool       // what is written arrives later, if ever
	late []byte     // that was written meanwhile
}

func (c *pipeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if delay := c.delay.Load(); delay > 0 {
		select {
		case <-time.After(time.Duration(delay)):
		case <-c.closed: // Close waits for the read
		}
	}
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *pipeConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.mute {
		defer c.mu.Unlock()
		c.late = append(c.late, p...)
		return len(p), nil
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *pipeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute { // the other side does not learn it
		return c.SetReadDeadline(time.Now())
	}
	return c.Conn.Close()
}

// fail cuts or freezes all connections that are open.
func (p *pipes) fail(freeze bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		if freeze {
			close(c.frozen)
		} else {
			_ = c.Close()
		}
	}
	p.open = nil
}

// at returns the connections to the host.
func (p *pipes) at(host string) (at []*pipeConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		if c.host == host {
			at = append(at, c)
		}
	}
	return at
}

// kill ends the host: its connections are reset, and others are refused.
func (p *pipes) kill(host string) {
	p.mu.Lock()
	delete(p.listeners, host)
	p.mu.Unlock()
	for _, c := range p.at(host) {
		_ = c.Close()
	}
}

// cut lets nothing through between the agent and the host, in both directions.
func (p *pipes) cut(host string) {
	p.mu.Lock()
	p.silent[host] = true
	p.mu.Unlock()
	for _, c := range p.at(host) {
		c.mu.Lock()
		c.mute = true
		c.mu.Unlock()
		close(c.frozen)
	}
}

// arrive brings the host what was sent to it since it was cut, also by connections that were closed.
func (p *pipes) arrive(host string) {
	for _, c := range p.at(host) {
		c.mu.Lock()
		late := c.late
		c.mute, c.late = false, nil
		c.mu.Unlock()
		_, _ = c.Conn.Write(late)
		select {
		case <-c.closed:
			_ = c.Conn.Close()
		default:
		}
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) listen(host string) *pipeListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners == nil {
		p.listeners, p.silent = map[string]*pipeListener{}, map[string]bool{}
	}
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.listeners[host] = l
	return l
}

func (p *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	l, silent := p.listeners[host], p.silent[host]
	p.dialled++
	p.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l == nil {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		c := &pipeConn{Conn: near, host: host, frozen: make(chan struct{}), closed: make(chan struct{})}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open = append(p.open, c)
		return c, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// scriptedGateway is a gateway whose answers a test writes.
type scriptedGateway struct {
	t        *testing.T
	host     string
	limit    time.Duration // the heartbeat limit of its welcomes
	replaces cell.Epoch
	sessions chan *scriptedSession
	// refuse, if set, may answer a handshake itself.
	refuse func(w http.ResponseWriter, r *http.Request) bool
	// bulk serves what comes by HTTP.
	bulk http.HandlerFunc
}

// scriptedSession is a session after its hello and welcome.
type scriptedSession struct {
	t        *testing.T
	host     string
	token    string
	socket   *websocket.Conn
	hello    frame.Request
	requests chan *frame.Request // closed at the end of the session
	closed   websocket.StatusCode
}

// serveScripted starts a gateway for the host.
func serveScripted(t *testing.T, p *pipes, host string) *scriptedGateway {
	t.Helper()
	g := &scriptedGateway{t: t, host: host, limit: 8 * time.Second, sessions: make(chan *scriptedSession, 16)}
	server := &http.Server{Handler: g}
	listener := p.listen(host)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return g
}

func (g *scriptedGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != frame.Path && g.bulk != nil:
		g.bulk(w, r)
		return
	case g.refuse != nil && g.refuse(w, r):
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{frame.Protocol}})
	if err != nil {
		g.t.Error(err)
		return
	}
	defer func() { _ = socket.CloseNow() }()
	s := &scriptedSession{t: g.t, host: g.host, token: r.Header.Get("Authorization"), socket: socket, requests: make(chan *frame.Request, 1024)}
	defer close(s.requests)
	for {
		_, message, err := socket.Read(context.Background())
		if err != nil {
			s.closed = websocket.CloseStatus(err)
			return
		}
		err = frame.DecodeRequests(message, func(q *frame.Request) error {
			if q.Type != frame.TypeHello {
				s.requests <- q
				return nil
			}
			s.hello = *q
			s.send(&frame.Answer{Type: frame.TypeWelcome, Welcome: &frame.Welcome{
				Protocol: frame.Protocol, Session: fmt.Sprintf("%s-%d", g.host, q.Connection), Replica: g.host,
				HeartbeatLimitMS: g.limit.Milliseconds(), MaxFrameBytes: frame.MaxFrameBytes, InlineBytes: frame.InlineBytes,
				MaxRequests: frame.MaxRequests, Replaces: g.replaces, Allows: frame.Allows{Token: "t", Nodes: []string{q.Node}},
			}})
			g.sessions <- s
			return nil
		})
		if err != nil {
			g.t.Error(err)
		}
	}
}

// send sends one frame. The session may have ended.
func (s *scriptedSession) send(answers ...*frame.Answer) {
	s.t.Helper()
	text := []byte{'['}
	for i, a := range answers {
		if i > 0 {
			text = append(text, ',')
		}
		var err error
		if text, err = frame.Append(text, a); err != nil {
			s.t.Error(err)
		}
	}
	_ = s.socket.Write(context.Background(), websocket.MessageText, append(text, ']'))
}

// next waits for a request, which must have this type.
func (s *scriptedSession) next(want frame.Type) *frame.Request {
	s.t.Helper()
	select {
	case q, ok := <-s.requests:
		if !ok {
			s.t.Fatalf("the session with %s has ended with %v, expected %s", s.host, s.closed, want)
		}
		if q.Type != want {
			s.t.Fatalf("%s has got %+v, expected %s", s.host, q, want)
		}
		return q
	case <-time.After(time.Hour):
		s.t.Fatalf("%s waits in vain for %s", s.host, want)
		return nil
	}
}

// end waits for the end of the session by the agent, and returns its close code.
func (s *scriptedSession) end() websocket.StatusCode {
	s.t.Helper()
	limit := time.After(time.Hour)
	for {
		select {
		case q, ok := <-s.requests:
			if !ok {
				return s.closed
			}
			s.t.Logf("%s has also got %s", s.host, q.Type)
		case <-limit:
			s.t.Fatalf("the session with %s does not end", s.host)
		}
	}
}

func (g *scriptedGateway) session() *scriptedSession {
	g.t.Helper()
	select {
	case s := <-g.sessions:
		return s
	case <-time.After(time.Hour):
		g.t.Fatalf("nobody connects to %s", g.host)
		return nil
	}
}

// scriptedStore is a store for node-1 with gateways at the hosts, of which the first accepts it.
type scriptedStore struct {
	*gatewayStore
	beats chan struct{} // has a token when a heartbeat was requested
}

func newScriptedStore(t *testing.T, p *pipes, cfg Config) *scriptedStore {
	t.Helper()
	cfg.Node = freeslot.Node{ID: "node-1", MaxConcurrency: 4}
	if cfg.TokenFile == "" && cfg.Token == "" {
		cfg.Token = "secret"
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	m, err := newGatewayMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedStore{beats: make(chan struct{}, 1)}
	if s.gatewayStore, err = newGatewayStore(cfg, "epoch-1", func() { notify(s.beats) }, m); err != nil {
		t.Fatal(err)
	}
	s.transport.DialContext, s.transport.Proxy = p.dial, nil
	return s
}

func startScriptedStore(t *testing.T, p *pipes, cfg Config) *scriptedStore {
	t.Helper()
	s := newScriptedStore(t, p, cfg)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_ = s.stop(ctx)
	})
	return s
}

// async runs fn and returns where its error comes.
func async(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

func (s *scriptedStore) heartbeat(t *testing.T) <-chan error {
	return async(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		_, err := s.Heartbeat(ctx, cell.Heartbeat{Status: freeslot.StatusOnline})
		return err
	})
}
