package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/gateway"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// authority signs certificates for 127.0.0.1.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key, cert}
}

// write writes a certificate and its key in PEM.
func (a *authority) write(t *testing.T, certFile, keyFile, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", keyDER)
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func startListener(t *testing.T, cfg gateway.ListenerConfig, log *zap.Logger) *gateway.Listener {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	l := gateway.NewListener(cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }), log)
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		if err := l.Err(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestListenerTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	servers, agents := newAuthority(t), newAuthority(t)
	servers.write(t, file("crt"), file("key"), "first")
	agents.write(t, file("agent.crt"), file("agent.key"), "gpu-1")
	writePEM(t, file("ca"), "CERTIFICATE", agents.cert.Raw)
	core, logged := observer.New(zap.ErrorLevel)
	l := startListener(t, gateway.ListenerConfig{CertFile: file("crt"), KeyFile: file("key"), ClientCAFile: file("ca")}, zap.New(core))
	own, err := tls.LoadX509KeyPair(file("agent.crt"), file("agent.key"))
	if err != nil {
		t.Fatal(err)
	}
	// ask is the name of the server's certificate and the answer.
	ask := func(cfg *tls.Config) (name, proto string, _ error) {
		cfg.RootCAs = servers.pool()
		transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true, DisableKeepAlives: true}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get("https://" + l.Addr())
		if err != nil {
			return "", "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.TLS.PeerCertificates[0].Subject.CommonName, string(body), err
	}
	name, proto, err := ask(&tls.Config{Certificates: []tls.Certificate{own}})
	if err != nil || name != "first" || proto != "HTTP/1.1" {
		t.Fatalf("served by %q over %q: %v", name, proto, err)
	}
	if _, _, err := ask(&tls.Config{}); err == nil {
		t.Error("an agent without a certificate was served")
	}
	servers.write(t, file("other.crt"), file("other.key"), "not an agent")
	other, err := tls.LoadX509KeyPair(file("other.crt"), file("other.key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(&tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &other, nil }}); err == nil {
		t.Error("an agent with the certificate of another authority was served")
	}
	if _, _, err := ask(&tls.Config{Certificates: []tls.Certificate{own}, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 was served")
	}

	// A certificate without its key is not taken; with it the next handshake has both.
	servers.write(t, file("crt"), file("new.key"), "second one")
	for range 2 {
		if name, _, err := ask(&tls.Config{Certificates: []tls.Certificate{own}}); err != nil || name != "first" {
			t.Errorf("with half of a new pair served by %q: %v", name, err)
		}
	}
	if n := logged.FilterMessage("gateway.certificate_refused").Len(); n != 1 {
		t.Errorf("%d lines say that the certificate cannot be used, want 1", n)
	}
	if err := os.Rename(file("new.key"), file("key")); err != nil {
		t.Fatal(err)
	}
	if name, _, err := ask(&tls.Config{Certificates: []tls.Certificate{own}}); err != nil || name != "second one" {
		t.Errorf("with a new pair served by %q: %v", name, err)
	}
}

func TestListenerRefuses(t *testing.T) {
	dir := t.TempDir()
	crt, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	newAuthority(t).write(t, crt, key, "a")
	taken := startListener(t, gateway.ListenerConfig{}, zap.NewNop())
	for name, cfg := range map[string]gateway.ListenerConfig{
		"gateway.listen " + taken.Addr() + ": bind: address already in use":  {Listen: taken.Addr()},
		"gateway.tls: open " + dir + "/none: no such file or directory":      {Listen: "127.0.0.1:0", CertFile: dir + "/none", KeyFile: key},
		"gateway.tls.client_ca_file " + key + " holds no certificate in PEM": {Listen: "127.0.0.1:0", CertFile: crt, KeyFile: key, ClientCAFile: key},
		"gateway.tls.client_ca_file: open none: no such file or directory":   {Listen: "127.0.0.1:0", CertFile: crt, KeyFile: key, ClientCAFile: "none"},
	} {
		l := gateway.NewListener(cfg, http.NotFoundHandler(), zap.NewNop())
		if err := l.Start(t.Context()); err == nil || err.Error() != name {
			t.Errorf("start: %v, want %s", err, name)
		}
		for range 2 {
			if err := l.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestListenerSilent: strangers that connect and say nothing leave room for others.
func TestListenerSilent(t *testing.T) {
	l := startListener(t, gateway.ListenerConfig{}, zap.NewNop())
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(waittest.Limit)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ask := func(conn net.Conn) error {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // the connection may be closed
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	// Connections are accepted one after another, so that the last one is beyond the limit.
	silent := make([]net.Conn, 256)
	for i := range silent {
		silent[i] = dial()
	}
	if ask(dial()) == nil {
		t.Error("a connection beyond the limit was served")
	}
	// One that speaks or goes makes room for one.
	if err := ask(silent[0]); err != nil {
		t.Fatalf("one of the first: %v", err)
	}
	if err := ask(dial()); err != nil {
		t.Errorf("there is no room: %v", err)
	}
}
