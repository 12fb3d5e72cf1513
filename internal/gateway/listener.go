package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
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
	// maxStrangers bounds the connections without a valid token, and strangersOfAddress the ones
	// that come from one address.
	maxStrangers       = 256
	strangersOfAddress = 64
	// maxOfOwner bounds the connections with tokens of one name that are not sessions.
	maxOfOwner = 8192
)

// ListenerConfig describes a listener for agents alone.
type ListenerConfig struct {
	// Listen is host:port; port 0 takes any free one.
	Listen string
	// TLS holds its certificate. nil, or one without files: it speaks plain HTTP.
	TLS *listener.TLS
	// Proxies name the senders of the requests that they pass on.
	Proxies []netip.Prefix
	// BoundLoopback bounds connections of the loopback like others, for tests.
	BoundLoopback bool
}

// Listener serves a handler to agents. It is safe for concurrent use.
type Listener struct {
	*listener.Server
}

// NewListener makes a listener. It does no I/O.
func NewListener(cfg ListenerConfig, h http.Handler, log *zap.Logger) *Listener {
	return &Listener{Server: listener.New("gateway.listen", cfg.Listen, &http.Server{
		Handler: linger.Handler(h), ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: listenerWrite,
		IdleTimeout:    listenerIdle,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: zap.NewStdLog(log.Named("http")),
	}, cfg.TLS, listener.Limits{
		Strangers: maxStrangers, PerAddress: strangersOfAddress, PerOwner: listener.HalfOfFiles(maxOfOwner),
		Proxies: cfg.Proxies, BoundLoopback: cfg.BoundLoopback,
	})}
}

// Stop is [listener.Server.Stop] with an error that names the gateway.
func (l *Listener) Stop(ctx context.Context) error {
	if err := l.Server.Stop(ctx); err != nil {
		return fmt.Errorf("stop gateway's listener: %w", err)
	}
	return nil
}
