package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// closeWait bounds the closing handshake, which does not count for the service's health.
const closeWait = 100 * time.Millisecond

type webSocketProbe struct {
	cfg  *WebSocket
	dial Dial
}

func (w webSocketProbe) run(ctx context.Context) error {
	tlsConfig, err := w.cfg.TLS.config()
	if err != nil {
		return err
	}
	var raw net.Conn // the one connection of the handshake
	client := newClient(tlsConfig, func(ctx context.Context, network, address string) (net.Conn, error) {
		var err error
		raw, err = w.dial(ctx, network, address)
		return raw, err
	})
	h := header(w.cfg.Headers)
	conn, resp, err := websocket.Dial(
		ctx, w.cfg.URL, &websocket.DialOptions{HTTPClient: client, HTTPHeader: h, Host: h.Get("Host")},
	)
	switch {
	case err != nil && resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return fmt.Errorf("the status is %d, expected 101", resp.StatusCode)
	case err != nil:
		return plain(err)
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() {
		// The library alone would wait 5 s for a service that does not say goodbye.
		defer time.AfterFunc(closeWait, func() { _ = raw.Close() }).Stop()
		_ = conn.Close(websocket.StatusNormalClosure, "") // the service has answered, which is enough
	}()
	if !w.cfg.Ping {
		return nil
	}
	// Only a reader sees the pong. Other messages of the service are dropped.
	reading.Go(func() { drop(ctx, conn) })
	if err := conn.Ping(ctx); err != nil {
		return fmt.Errorf("%w: %w", errPong, err)
	}
	return nil
}

// errPong is the outcome if a ping is not answered.
var errPong = errors.New("the ping was not answered")

func drop(ctx context.Context, conn *websocket.Conn) {
	conn.SetReadLimit(-1) // nothing is kept, and ctx bounds the time
	for {
		_, r, err := conn.Reader(ctx)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return
		}
	}
}
