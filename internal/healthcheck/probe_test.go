package healthcheck

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience is longer than any answer takes.
const patience = waittest.Limit

// quiet receives the servers' logs about clients that do not trust them.
var quiet = log.New(io.Discard, "", 0)

// outcome is the error of one check of a valid configuration; "" is healthy.
func outcome(t *testing.T, cfg Config) string {
	t.Helper()
	cfg.Resolve()
	if cfg.Timeout == DefaultTimeout {
		cfg.Timeout = patience
	}
	l := &loop{cfg: &cfg, probe: newProbe(&cfg, new(net.Dialer).DialContext)}
	if err := l.check(t.Context()); err != nil {
		return err.Error()
	}
	return ""
}

// expect compares with the beginning of an outcome; "" is healthy.
func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if want == "" && got != "" || !strings.HasPrefix(got, want) {
		t.Errorf("%s: %q, expected %q", what, got, want)
	}
	if strings.Contains(got, "hidden") {
		t.Errorf("%s: %q gives a secret away", what, got)
	}
}

// authority makes certificates; file names are in dir.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes <name>.pem and <name>.key and returns them.
func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// server is the TLS configuration of a service that also asks its clients for a certificate.
func (a *authority) server() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{a.issue("service.test")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
}

// tlsCases run with every kind of check. They expect a part of the outcome, or any failure for "-".
func (a *authority) tlsCases() map[string]struct {
	tls  *TLS
	want string
} {
	a.issue("agent.test")
	full := TLS{CAFile: a.file("ca.pem"), ServerName: "service.test", CertFile: a.file("agent.test.pem"), KeyFile: a.file("agent.test.key")}
	without := func(f func(*TLS)) *TLS { c := full; f(&c); return &c }
	return map[string]struct {
		tls  *TLS
		want string
	}{
		"all of it":             {&full, ""},
		"unknown authority":     {without(func(c *TLS) { c.CAFile = "" }), "certificate signed by unknown authority"},
		"another name":          {without(func(c *TLS) { c.ServerName = "other.test" }), "not other.test"},
		"no client certificate": {without(func(c *TLS) { c.CertFile, c.KeyFile = "", "" }), "-"},
		"anybody":               {&TLS{InsecureSkipVerify: true, CertFile: full.CertFile, KeyFile: full.KeyFile}, ""},
		"file gone":             {without(func(c *TLS) { c.CAFile = a.file("gone") }), `ca_file is "` + a.file("gone") + `", which cannot be read`},
		"key gone":              {without(func(c *TLS) { c.KeyFile = a.file("gone") }), `cert_file is "` + full.CertFile + `", which cannot be used`},
	}
}

func (a *authority) try(cfg func(*TLS) Config) {
	a.t.Helper()
	for name, test := range a.tlsCases() {
		got := outcome(a.t, cfg(test.tls))
		if test.want == "-" && got != "" {
			continue // the refusal, or what it does to a write that is under way
		}
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			a.t.Errorf("%s: %q, expected %q", name, got, test.want)
		}
	}
}

func TestHTTP(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // not heeded
	mux := http.NewServeMux()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, body) }
	}
	mux.Handle("/ok", answer(204, ""))
	mux.Handle("/busy", answer(503, "hidden"))
	mux.Handle("/text", answer(200, `{"status": "ready"}`))
	mux.Handle("/moved", http.RedirectHandler("/ok", http.StatusFound))
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // for ever
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/header", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hidden" || r.Host != "asr.test" || r.Header.Get("User-Agent") != "freeslot-check" || r.Method != "GET" {
			w.WriteHeader(401)
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for name, test := range map[string]struct {
		http HTTP
		want string
	}{
		"/ok":            {HTTP{}, ""},
		"/busy":          {HTTP{}, "the status is 503, expected 200 to 299"},
		"/busy?expected": {HTTP{MinStatus: 500, MaxStatus: 503}, ""},
		"/text":          {HTTP{BodyContains: `"ready"`}, ""},
		"/text?other":    {HTTP{BodyContains: "starting"}, "the body does not have what body_contains expects"},
		"/moved":         {HTTP{}, "the status is 302, expected 200 to 299"},
		"/long":          {HTTP{BodyContains: "x"}, "the body does not have what body_contains expects"},
		"/long?unread":   {HTTP{}, ""},
		"/header":        {HTTP{Headers: map[string]string{"authorization": "Bearer hidden", "Host": "asr.test"}}, ""},
	} {
		test.http.URL = server.URL + name
		expect(t, name, outcome(t, Config{HTTP: &test.http}), test.want)
	}
	expect(t, "hangs", outcome(t, Config{HTTP: &HTTP{URL: server.URL + "/hangs"}, Timeout: 50 * time.Millisecond}), "no answer within 50ms")
	expect(t, "nobody", outcome(t, Config{HTTP: &HTTP{URL: "http://user:hidden@127.0.0.1:1/"}}), "no answer: dial tcp 127.0.0.1:1: connect: connection refused")
	expect(t, "not TLS", outcome(t, Config{HTTP: &HTTP{URL: "https" + strings.TrimPrefix(server.URL, "http")}}), "no answer: http: server gave HTTP response to HTTPS client")
}

func TestHTTPS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = a.server()
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(server.Close)
	a.try(func(c *TLS) Config {
		return Config{HTTP: &HTTP{URL: server.URL, MinStatus: 404, MaxStatus: 404, TLS: c}}
	})
}

// TestRenewedCertificate: files are read each time.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("agent.test")
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = a.server()
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(server.Close)
	other := newAuthority(t)
	other.issue("agent.test")
	cfg := Config{HTTP: &HTTP{URL: server.URL, MinStatus: 404, MaxStatus: 404, TLS: &TLS{
		CAFile: a.file("ca.pem"), ServerName: "service.test", CertFile: other.file("agent.test.pem"), KeyFile: other.file("agent.test.key"),
	}}}
	cfg.Resolve()
	p := newProbe(&cfg, new(net.Dialer).DialContext)
	if err := p.run(t.Context()); err == nil {
		t.Error("a certificate of another authority is accepted")
	}
	for _, name := range []string{"agent.test.pem", "agent.test.key"} {
		if err := os.Rename(a.file(name), other.file(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTCP(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	expect(t, "listening", outcome(t, Config{TCP: &TCP{Address: address}}), "")
	_ = listener.Close()
	expect(t, "closed", outcome(t, Config{TCP: &TCP{Address: address}}), "dial tcp "+address+": connect: connection refused")
}

// serveGRPC is a server with the health service of the reference implementation.
func serveGRPC(t *testing.T, options ...grpc.ServerOption) (*health.Server, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, h := grpc.NewServer(options...), health.NewServer()
	healthpb.RegisterHealthServer(server, h)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return h, listener.Addr().String()
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	h, address := serveGRPC(t)
	check := func(service string) string {
		return outcome(t, Config{GRPC: &GRPC{Address: address, Service: service}})
	}
	expect(t, "the server", check(""), "")
	expect(t, "unknown", check("speech.v1.ASR"), `the health service does not know service "speech.v1.ASR"`)
	h.SetServingStatus("speech.v1.ASR", healthpb.HealthCheckResponse_SERVING)
	expect(t, "serving", check("speech.v1.ASR"), "")
	h.SetServingStatus("speech.v1.ASR", healthpb.HealthCheckResponse_NOT_SERVING)
	expect(t, "not serving", check("speech.v1.ASR"), "the health service says NOT_SERVING, expected SERVING")
	expect(t, "nobody", outcome(t, Config{GRPC: &GRPC{Address: "127.0.0.1:1"}}), "Unavailable: connection error")

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	silent := Config{GRPC: &GRPC{Address: listener.Addr().String()}, Timeout: 50 * time.Millisecond}
	expect(t, "silent", outcome(t, silent), "no answer within 50ms")

	bare := grpc.NewServer()
	served := make(chan struct{})
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer close(served); _ = bare.Serve(other) }()
	defer func() { bare.Stop(); <-served }()
	expect(t, "no health service", outcome(t, Config{GRPC: &GRPC{Address: other.Addr().String()}}), "the server has no health service grpc.health.v1")
}

func TestGRPCOverTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	_, address := serveGRPC(t, grpc.Creds(credentials.NewTLS(a.server())))
	a.try(func(c *TLS) Config { return Config{GRPC: &GRPC{Address: address, TLS: c}} })
}

// greet accepts authorized clients, sends more than a library takes by default, and then reads
// until the client goes.
func greet(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hidden" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := conn.Write(ctx, websocket.MessageText, []byte(strings.Repeat("welcome ", 8192))); err != nil {
			return // who does not ping does not wait for it
		}
		if _, _, err = conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("the connection ended with %v", err)
		}
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(greet(t))
	t.Cleanup(server.Close)
	authorized := map[string]string{"Authorization": "Bearer hidden"}
	address := "ws" + strings.TrimPrefix(server.URL, "http")
	expect(t, "handshake", outcome(t, Config{WebSocket: &WebSocket{URL: address, Headers: authorized}}), "")
	expect(t, "ping", outcome(t, Config{WebSocket: &WebSocket{URL: address, Headers: authorized, Ping: true}}), "")
	expect(t, "refused", outcome(t, Config{WebSocket: &WebSocket{URL: address}}), "the status is 401, expected 101")
	expect(t, "nobody", outcome(t, Config{WebSocket: &WebSocket{URL: "ws://user:hidden@127.0.0.1:1"}}), "no answer: dial tcp 127.0.0.1:1: connect: connection refused")
}

// TestSilentWebSocket: a service that makes the handshake and then stays silent fails the ping.
func TestSilentWebSocket(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		<-ended
		_ = conn.CloseNow()
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	address := "ws" + strings.TrimPrefix(server.URL, "http")
	expect(t, "no ping", outcome(t, Config{WebSocket: &WebSocket{URL: address}}), "")
	expect(t, "ping", outcome(t, Config{WebSocket: &WebSocket{URL: address, Ping: true}, Timeout: 200 * time.Millisecond}), "no answer within 200ms")
}

func TestWebSocketOverTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_, _, _ = conn.Read(r.Context())
		_ = conn.CloseNow()
	}))
	server.TLS = a.server()
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(server.Close)
	a.try(func(c *TLS) Config {
		return Config{WebSocket: &WebSocket{URL: "wss" + strings.TrimPrefix(server.URL, "https"), TLS: c}}
	})
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{"http": {HTTP: &HTTP{}}, "tcp": {TCP: &TCP{}}, "grpc": {GRPC: &GRPC{}}, "websocket": {WebSocket: &WebSocket{}}} {
		if got := strings.Join(cfg.kinds(), " "); got != want || !strings.HasPrefix(strings.ToLower(fmt.Sprintf("%T", newProbe(&cfg, new(net.Dialer).DialContext))), "healthcheck."+want) {
			t.Errorf("%s, %T, expected %s", got, newProbe(&cfg, new(net.Dialer).DialContext), want)
		}
	}
}
