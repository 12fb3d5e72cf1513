// Package listener serves HTTP on one address from Start to Stop.
package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Server serves an http.Server on one address. It is safe for concurrent use.
type Server struct {
	setting, address string
	http             *http.Server
	tls              *TLS
	strangers        *strangers

	mu       sync.Mutex // guards listener, stopped
	listener net.Listener
	stopped  bool
	done     chan struct{} // closed when Serve has returned
	err      error         // why it ended; set before done is closed
}

// New returns a server that does not listen yet. address is host:port; port 0 takes any free one.
// setting names the address in errors. Without secure it speaks plain HTTP. limits bounds the
// connections whose requests were not given to Prove.
func New(setting, address string, server *http.Server, secure *TLS, limits Limits) *Server {
	s := &Server{
		setting: setting, address: address, http: server, tls: secure, strangers: newStrangers(limits),
		done: make(chan struct{}),
	}
	server.Handler, server.ConnState = s.strangers.byName(server.Handler), s.strangers.count
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if own := connOf(c); own != nil {
			return context.WithValue(ctx, connKey{}, own)
		}
		return ctx
	}
	return s
}

// HalfOfFiles returns half of the files that the process may have open, and at most most.
func HalfOfFiles(most int) int {
	if files := MaxFiles(); files > 0 {
		return min(most, files/2)
	}
	return most
}

// Start listens, and serves until Stop. A server can be started once, and not after Stop. The
// context bounds only the start.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.listener != nil {
		return errors.New("server was started before")
	}
	secure, err := s.tls.Config()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.address)
	if err != nil {
		// The message has operation and address already.
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return fmt.Errorf("%s %s: %w", s.setting, s.address, err)
	}
	s.listener = listener
	listener = s.strangers.listen(listener)
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("serve %s: %w", s.address, err)
		}
	}()
	return nil
}

// Addr returns the address on which the server listens; empty before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Done returns a channel that is closed when a started server no longer serves. Err then returns
// the reason, nil after Stop.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil until Done is closed.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop closes the listener and waits for requests under way. When ctx ends it cuts them off and
// returns an error. It does not wait for WebSockets, which belong to their handlers. It tolerates a
// server that was never started, and a second call.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	started := s.listener != nil
	s.mu.Unlock()
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	if started {
		<-s.done
	}
	return err
}
