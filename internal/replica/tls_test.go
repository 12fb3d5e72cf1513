package replica

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/certtest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

// TestTLS: requests, sessions of clients and those of agents go by TLS at the main address.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), certtest.NewAuthority(t)
	cert, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	authority.Write(t, cert, key, "r1")
	g := startGated(t, func(cfg *config.Replica) { cfg.TLS = config.ListenTLS{CertFile: cert, KeyFile: key} })
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}
	defer transport.CloseIdleConnections()
	caller := &http.Client{Transport: transport}
	ctx := waittest.Context(t)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+g.Addr()+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := caller.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz answers %s, expected 200", resp.Status)
	}
	for token, path := range map[string]string{"client": api.SessionPath, "gpu-1": frame.Path} {
		protocol := wire.Protocol
		if path == frame.Path {
			protocol = frame.Protocol
		}
		conn, _, err := websocket.Dial(ctx, "wss://"+g.Addr()+path, &websocket.DialOptions{
			HTTPClient: caller, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{protocol},
		})
		if err != nil {
			t.Errorf("%s: %v, expected a session", path, err)
			continue
		}
		_ = conn.CloseNow()
	}
}
