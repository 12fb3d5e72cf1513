package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/certtest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
	"github.com/freeslot/freeslot/internal/testing/reference"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// scrape returns the number of series.
func (s *system) scrape(t *testing.T) (series int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "#") {
			series++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return series
}

// useGateway connects an agent that asks for the spec of a job it does not have. A second agent is
// refused.
func useGateway(t *testing.T, s *system, trusted *x509.CertPool) {
	t.Helper()
	ctx := waittest.Context(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	t.Cleanup(transport.CloseIdleConnections)
	dial := func(token string) (*websocket.Conn, error) {
		conn, _, err := websocket.Dial(ctx, "wss://"+s.replica.GatewayAddr()+frame.Path, &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: transport},
			HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{frame.Protocol},
		})
		return conn, err
	}
	if _, err := dial("unknown"); err == nil {
		t.Fatal("a session began with an unknown token")
	}
	conn, err := dial("secret")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	for _, text := range []string{
		`{"type":"hello","node":"gpu-1","epoch":"e","connection":1}`,
		`{"type":"spec","id":1,"job_id":"0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"}`,
	} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.Read(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMetricsReference: dashboards rely on the metrics' names, types and labels.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	digest := sha256.Sum256([]byte("secret"))
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "- {name: gpu, sha256: %x, nodes: [gpu-1]}", digest), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, authority := t.TempDir(), certtest.NewAuthority(t)
	cert, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	authority.Write(t, cert, key, "gateway")
	s := startSystem(t, func(cfg *config.Replica) {
		cfg.Gateway.Listen, cfg.Gateway.TLS = "127.0.0.1:0", config.ListenTLS{CertFile: cert, KeyFile: key}
		cfg.TenantDefaults.Admission.Chain = "unknown"
		cfg.Locked, cfg.Gateway.TokensFile = config.Locked{Mirror: true, Verify: true}, tokens
	})
	useGateway(t, s, authority.Pool())
	// Labelled metrics appear with their first value.
	call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"echo"}`)
	call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"nobody-has-it"}`)
	golden.Metrics(t, "metrics.txt", s.metrics)
	reference.Check(t, "metrics.md", "scheduler", reference.Metrics(t, s.metrics))
}

// TestScrapeDoesNotGrow: the number of series, and so a scrape's work, is the same
// with one node and with two hundred.
func TestScrapeDoesNotGrow(t *testing.T) {
	t.Parallel()
	var redis config.Redis
	s := startSystem(t, func(cfg *config.Replica) { redis = cfg.Redis })
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: redis.KeyPrefix}}, redistest.Shared(t).Client(t), zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	register := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			node := freeslot.Node{ID: fmt.Sprintf("extra-%d", i), MaxConcurrency: 1}
			if _, err := c.Register(t.Context(), node, cell.NewEpoch()); err != nil {
				t.Fatal(err)
			}
		}
		s.await(t, fmt.Sprintf("extra-%d", to-1))
	}
	register(0, 1)
	job := func() { call(t, http.MethodPost, s.url+"/v1/jobs?wait_ms=5000", `{"service":"echo"}`) }
	job()
	settle := func() int {
		// Go's own collectors and the first use of a label add series once; wait
		// until two scrapes agree.
		last := s.scrape(t)
		waittest.Until(t, "the number of series to settle", func() bool {
			before := last
			last = s.scrape(t)
			return last == before
		}, func() any { return last })
		return last
	}
	before := settle()
	register(1, 200)
	job()
	// An operation that is first needed meanwhile, such as the load after a lost event, adds its
	// series. Series that grow with the nodes would add at least one for each node.
	if after := settle(); after >= before+199 {
		t.Errorf("%d series with 2 nodes, %d with 201", before, after)
	}
}
