package gatewaytest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// Gateway is a gateway whose answers a test writes.
type Gateway struct {
	t        *testing.T
	Host     string
	Limit    time.Duration // the heartbeat limit of its welcomes
	Replaces cell.Epoch
	Sessions chan *Session
	// Refuse, if set, may answer a handshake itself.
	Refuse func(w http.ResponseWriter, r *http.Request) bool
	// Bulk serves what comes by HTTP.
	Bulk http.HandlerFunc
}

// Session is a session after its hello and welcome.
type Session struct {
	t        *testing.T
	Host     string
	Token    string // the header that holds it
	Socket   *websocket.Conn
	Hello    frame.Request
	Requests chan *frame.Request // closed at the end of the session
	// Frames counts the frames that have come; LargestFrame has the bytes of the largest.
	Frames, LargestFrame atomic.Int64
	closed               websocket.StatusCode
}

// New returns a gateway that the test serves itself.
func New(t *testing.T, host string) *Gateway {
	return &Gateway{t: t, Host: host, Limit: 8 * time.Second, Sessions: make(chan *Session, 16)}
}

// Serve starts a gateway for the host.
func Serve(t *testing.T, p *Network, host string) *Gateway {
	t.Helper()
	g := New(t, host)
	server := &http.Server{Handler: g}
	listener := p.Listen(host)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return g
}

func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != frame.Path && g.Bulk != nil:
		g.Bulk(w, r)
		return
	case g.Refuse != nil && g.Refuse(w, r):
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{frame.Protocol}})
	if err != nil {
		g.t.Error(err)
		return
	}
	defer func() { _ = socket.CloseNow() }()
	s := &Session{
		t: g.t, Host: g.Host, Token: r.Header.Get("Authorization"), Socket: socket, Requests: make(chan *frame.Request, 1024),
	}
	defer close(s.Requests)
	for {
		_, message, err := socket.Read(context.Background())
		if err != nil {
			s.closed = websocket.CloseStatus(err)
			return
		}
		s.Frames.Add(1)
		s.LargestFrame.Store(max(s.LargestFrame.Load(), int64(len(message))))
		err = frame.DecodeRequests(message, func(q *frame.Request) error {
			if q.Type != frame.TypeHello {
				s.Requests <- q
				return nil
			}
			s.Hello = *q
			s.Send(&frame.Answer{Type: frame.TypeWelcome, Welcome: &frame.Welcome{
				Protocol: frame.Protocol, Session: fmt.Sprintf("%s-%d", g.Host, q.Connection), Replica: g.Host,
				HeartbeatLimitMS: g.Limit.Milliseconds(), MaxFrameBytes: frame.MaxFrameBytes, InlineBytes: frame.InlineBytes,
				MaxRequests: frame.MaxRequests, Replaces: g.Replaces, Allows: frame.Allows{Token: "t", Nodes: []string{q.Node}},
			}})
			g.Sessions <- s
			return nil
		})
		if err != nil {
			g.t.Error(err)
		}
	}
}

// Send sends one frame. The session may have ended.
func (s *Session) Send(answers ...*frame.Answer) {
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
	_ = s.Socket.Write(context.Background(), websocket.MessageText, append(text, ']'))
}

// Next waits for a request, which must have this type.
func (s *Session) Next(want frame.Type) *frame.Request {
	s.t.Helper()
	select {
	case q, ok := <-s.Requests:
		if !ok {
			s.t.Fatalf("the session with %s has ended with %v, expected %s", s.Host, s.closed, want)
		}
		if q.Type != want {
			s.t.Fatalf("%s has got %+v, expected %s", s.Host, q, want)
		}
		return q
	case <-time.After(time.Hour):
		s.t.Fatalf("%s has got nothing, expected %s", s.Host, want)
		return nil
	}
}

// End waits for the end of the session by the agent, and returns its close code.
func (s *Session) End() websocket.StatusCode {
	s.t.Helper()
	limit := time.After(time.Hour)
	for {
		select {
		case q, ok := <-s.Requests:
			if !ok {
				return s.closed
			}
			s.t.Logf("%s has also got %s", s.Host, q.Type)
		case <-limit:
			s.t.Fatalf("the session with %s does not end", s.Host)
		}
	}
}

// Session waits for the next session.
func (g *Gateway) Session() *Session {
	g.t.Helper()
	select {
	case s := <-g.Sessions:
		return s
	case <-time.After(time.Hour):
		g.t.Fatalf("no agent connects to %s", g.Host)
		return nil
	}
}

// Async runs fn and returns the channel that gets its error.
func Async(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}
