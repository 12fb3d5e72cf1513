package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/linger"
	"github.com/freeslot/freeslot/internal/listener"
)

const (
	readHeaderTimeout = 5 * time.Second
	listenerWrite     = 75 * time.Second
	listenerIdle      = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
	// maxSilent is the number of open connections that may not have sent a request yet.
	maxSilent = 256
)

// ListenerConfig describes a listener for agents alone.
type ListenerConfig struct {
	// Listen is host:port; port 0 takes any free one.
	Listen string
	// TLS holds its certificate. nil, or one without files: it speaks plain HTTP.
	TLS *listener.TLS
}

// Listener serves a handler to agents. It is safe for concurrent use.
type Listener struct {
	*listener.Server

	mu     sync.Mutex // guards silent
	silent map[net.Conn]struct{}
}

// NewListener makes a listener. It does no I/O.
func NewListener(cfg ListenerConfig, h http.Handler, log *zap.Logger) *Listener {
	l := &Listener{silent: make(map[net.Conn]struct{})}
	l.Server = listener.New("gateway.listen", cfg.Listen, &http.Server{
		Handler: linger.Handler(h), ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: listenerWrite,
		IdleTimeout:    listenerIdle,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: zap.NewStdLog(log.Named("http")), ConnState: l.count,
	}, cfg.TLS)
	return l
}

// Stop is [listener.Server.Stop] with an error that names the gateway.
func (l *Listener) Stop(ctx context.Context) error {
	if err := l.Server.Stop(ctx); err != nil {
		return fmt.Errorf("stop gateway's listener: %w", err)
	}
	return nil
}

// count closes connections beyond maxSilent that have sent nothing: strangers must not use up the
// process's files.
func (l *Listener) count(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	full := state == http.StateNew && len(l.silent) >= maxSilent
	if state == http.StateNew && !full {
		l.silent[conn] = struct{}{}
	} else {
		delete(l.silent, conn)
	}
	l.mu.Unlock()
	if full {
		_ = conn.Close()
	}
}
