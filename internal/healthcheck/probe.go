package healthcheck

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// probe checks once. run returns nil if the service is healthy, otherwise the reason, without
// addresses that may hold a secret. It ends with ctx and leaves no connection and no goroutine
// behind.
type probe interface {
	run(ctx context.Context) error
}

// newProbe returns the probe of a valid configuration.
func newProbe(c *Config, dial Dial) probe {
	switch {
	case c.Func != nil:
		return funcProbe(c.Func)
	case c.HTTP != nil:
		return httpProbe{c.HTTP, dial}
	case c.TCP != nil:
		return tcpProbe{c.TCP.Address, dial}
	case c.GRPC != nil:
		return grpcProbe{c.GRPC, dial}
	default:
		return webSocketProbe{c.WebSocket, dial}
	}
}

// funcProbe is a check that was written in Go.
type funcProbe func(ctx context.Context) error

func (f funcProbe) run(ctx context.Context) error { return f(ctx) }

// tcpProbe opens a connection.
type tcpProbe struct {
	address string
	dial    Dial
}

func (t tcpProbe) run(ctx context.Context) error {
	conn, err := t.dial(ctx, "tcp", t.address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Dial opens the connection of a check.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// newClient makes a client for one request: its connection is closed with the response.
func newClient(tlsConfig *tls.Config, dial Dial) *http.Client {
	return &http.Client{
		// No proxy: the service is local, even if HTTP_PROXY is set.
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: tlsConfig,
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
		// A redirect leads to a server that is not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// header returns the configured headers and the user agent.
func header(configured map[string]string) http.Header {
	h := http.Header{"User-Agent": {"freeslot-check"}}
	for name, value := range configured {
		h.Set(name, value)
	}
	return h
}

// plain returns the error without the URL, which may hold a secret.
func plain(err error) error {
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("no answer: %w", withURL.Err)
	}
	return err
}

// Once makes one check by a valid configuration. If the service is not well, it returns the reason.
func Once(ctx context.Context, cfg *Config, dial Dial) error {
	l := &loop{cfg: cfg, probe: newProbe(cfg, dial)}
	return l.check(ctx)
}
