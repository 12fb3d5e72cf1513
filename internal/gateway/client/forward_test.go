package client

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// proxiedCA is set for the process that runs behind the proxy: the file with the gateway's CA.
const proxiedCA = "FREESLOT_TEST_PROXIED_CA"

// forwardProxy passes every CONNECT on to one address, and notes what it was asked for.
type forwardProxy struct {
	t       *testing.T
	to      string
	tunnels sync.WaitGroup

	mu    sync.Mutex // guards asked
	asked []string
}

func (p *forwardProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.tunnels.Add(1)
	defer p.tunnels.Done()
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
	p.mu.Unlock()
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer far.Close()
	near, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.t.Error(err)
		return
	}
	defer near.Close()
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	p.tunnels.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, near)
}

// TestGatewayForwardProxy: the connection, and what goes by HTTP beside it, take the forward proxy that
// the environment names. Programs read that once, so the store is in a process of its own.
func TestGatewayForwardProxy(t *testing.T) {
	if ca := os.Getenv(proxiedCA); ca != "" {
		useProxied(t, ca)
		return
	}
	t.Parallel()
	g := gatewaytest.New(t, "a")
	var posted sync.Map
	g.Bulk = func(w http.ResponseWriter, r *http.Request) {
		posted.Store(r.URL.Path, true)
		_, _ = io.Copy(io.Discard, r.Body)
		answer := &frame.Answer{Type: frame.TypeCompleted, Outcome: string(cell.Completed)}
		if r.URL.Path == frame.SpecPath {
			answer = &frame.Answer{Type: frame.TypeSpec, Job: &freeslot.Job{Service: "s"}}
		}
		text, err := frame.Append(nil, answer)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(text)
	}
	server := httptest.NewTLSServer(g) // its certificate is for example.com
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &forwardProxy{t: t, to: server.Listener.Addr().String()}
	proxy := httptest.NewServer(p)
	t.Cleanup(func() {
		proxy.Close()
		p.tunnels.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestGatewayForwardProxy$")
	cmd.Env = append(os.Environ(), "HTTPS_PROXY=http://user:pass@"+strings.TrimPrefix(proxy.URL, "http://"), "https_proxy=", "NO_PROXY=", "no_proxy=", proxiedCA+"="+ca)
	ended := gatewaytest.Async(func() error {
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	})
	select {
	case peer := <-g.Sessions:
		peer.Send(&frame.Answer{Type: frame.TypeSpec, ID: peer.Next(frame.TypeSpec).ID, Large: true})
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	case err := <-ended:
		t.Fatalf("the store has ended: %v", err)
	}
	for _, path := range []string{frame.SpecPath, frame.CompletePath} {
		if _, ok := posted.Load(path); !ok {
			t.Errorf("nothing came to %s", path)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) < 2 {
		t.Errorf("the proxy was asked for %q, expected a tunnel for the connection and another one", p.asked)
	}
	for _, asked := range p.asked {
		if asked != "CONNECT example.com:443 Basic dXNlcjpwYXNz" {
			t.Errorf("the proxy was asked for %q", asked)
		}
	}
}

// useProxied uses a store as one behind a proxy.
func useProxied(t *testing.T, ca string) {
	t.Helper()
	s := newStore(t, Config{Gateway: "wss://example.com", TLS: TLS{CAFile: ca}}, func() {})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(t.Context()) }()
	if job, _, err := s.Spec(t.Context(), "j"); err != nil || job.Service != "s" {
		t.Errorf("a large spec: %+v, %v", job, err)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 2*frame.InlineBytes) + `"`)
	if outcome, err := s.Complete(t.Context(), cell.Completion{Attempt: id(1), State: freeslot.StateSucceeded, Result: large}); err != nil {
		t.Errorf("a large result: %s, %v", outcome, err)
	}
}
