package listener

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/testing/certtest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// secured is a server with TLS that answers with the version of HTTP.
type secured struct {
	*Server
	dir     string
	servers *certtest.Authority
	reg     *prometheus.Registry
	logged  *observer.ObservedLogs
}

func (s *secured) file(name string) string { return filepath.Join(s.dir, name) }

// startSecured starts a server whose callers need a certificate of the given authority, if any.
func startSecured(t *testing.T, callers *certtest.Authority) *secured {
	t.Helper()
	s := &secured{dir: t.TempDir(), servers: certtest.NewAuthority(t), reg: prometheus.NewRegistry()}
	s.servers.Write(t, s.file("crt"), s.file("key"), "first")
	files := Files{Cert: s.file("crt"), Key: s.file("key")}
	if callers != nil {
		callers.WriteCA(t, s.file("ca"))
		files.ClientCA = s.file("ca")
	}
	core, logged := observer.New(zap.InfoLevel)
	s.logged = logged
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	s.Server = New("listen on", "127.0.0.1:0", &http.Server{Handler: handler}, NewTLS("tls", files, zap.New(core), s.reg), Limits{})
	if err := s.Start(waittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(waittest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask returns the name in the server's certificate, and the answer.
func (s *secured) ask(t *testing.T, cfg *tls.Config) (name, proto string, _ error) {
	t.Helper()
	cfg.RootCAs = s.servers.Pool()
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodGet, "https://"+s.Addr(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.TLS.PeerCertificates[0].Subject.CommonName, string(body), err
}

// shows asks without a certificate, and checks which one the server shows.
func (s *secured) shows(t *testing.T, when, want string) {
	t.Helper()
	if name, _, err := s.ask(t, &tls.Config{}); err != nil || name != want {
		t.Errorf("%s: served by %q (%v), expected %q", when, name, err, want)
	}
}

// refused checks how many changes were refused, by log and by metric.
func (s *secured) refused(t *testing.T, when string, want int) {
	t.Helper()
	lines, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := -1.0
	for _, family := range lines {
		if family.GetName() == "freeslot_tls_refused_total" {
			counted = family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if n := s.logged.FilterMessage("listener.tls_refused").Len(); n != want || int(counted) != want {
		t.Errorf("%s: %d lines in the log and %v in the metric say that a change is refused, expected %d", when, n, counted, want)
	}
}

func load(t *testing.T, cert, key string) []tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

// TestTLSCallers: with an authority for callers, only its certificates are let in; TLS 1.1 never
// is.
func TestTLSCallers(t *testing.T) {
	t.Parallel()
	callers := certtest.NewAuthority(t)
	s := startSecured(t, callers)
	callers.Write(t, s.file("own.crt"), s.file("own.key"), "caller")
	own := load(t, s.file("own.crt"), s.file("own.key"))
	name, proto, err := s.ask(t, &tls.Config{Certificates: own})
	if err != nil || name != "first" || proto != "HTTP/1.1" {
		t.Fatalf("served by %q over %q: %v, expected first over HTTP/1.1", name, proto, err)
	}
	if _, _, err := s.ask(t, &tls.Config{}); err == nil {
		t.Error("a caller without a certificate is served, expected a refusal")
	}
	s.servers.Write(t, s.file("other.crt"), s.file("other.key"), "not a caller")
	other := load(t, s.file("other.crt"), s.file("other.key"))
	if _, _, err := s.ask(t, &tls.Config{
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &other[0], nil },
	}); err == nil {
		t.Error("a caller with a certificate of another authority is served, expected a refusal")
	}
	if _, _, err := s.ask(t, &tls.Config{Certificates: own, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is served, expected a refusal")
	}

	// The authorities are read again, too: the former ones let no one in any more.
	s.servers.WriteCA(t, s.file("ca"))
	if _, _, err := s.ask(t, &tls.Config{Certificates: own}); err == nil {
		t.Error("a caller of the former authority is served, expected a refusal")
	}
	if _, _, err := s.ask(t, &tls.Config{Certificates: other}); err != nil {
		t.Errorf("a caller of the new authority is refused: %v", err)
	}
}

// TestTLSChanges: a changed certificate is shown from the next handshake on. One that cannot be
// used leaves the former in use, and is named once.
func TestTLSChanges(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	if n, err := testutil.GatherAndCount(s.reg, "freeslot_tls_certificate_expiry_timestamp_seconds"); n != 1 || err != nil {
		t.Errorf("%d series (%v) have the certificate's end, expected 1", n, err)
	}
	s.servers.Write(t, s.file("crt"), s.file("new.key"), "second one")
	for range 2 {
		s.shows(t, "with half of a new pair", "first")
	}
	s.refused(t, "with half of a new pair", 1)
	// Keys are of one size, and may have been written within a tick of the file system's clock.
	later := time.Now().Add(time.Second)
	err := os.Chtimes(s.file("new.key"), later, later)
	if err = errors.Join(err, os.Rename(s.file("new.key"), s.file("key"))); err != nil {
		t.Fatal(err)
	}
	s.shows(t, "with a new pair", "second one")
	if err := os.WriteFile(s.file("crt"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.shows(t, "with a broken certificate", "second one")
	if err := os.Remove(s.file("key")); err != nil {
		t.Fatal(err)
	}
	s.shows(t, "without a key", "second one")
	s.refused(t, "at the end", 3)
}

func TestTLSRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	crt, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	certtest.NewAuthority(t).Write(t, crt, key, "a")
	for want, files := range map[string]Files{
		"tls: open " + dir + "/none: no such file or directory":      {Cert: dir + "/none", Key: key},
		"tls.client_ca_file " + key + " holds no certificate in PEM": {Cert: crt, Key: key, ClientCA: key},
		"tls.client_ca_file: open none: no such file or directory":   {Cert: crt, Key: key, ClientCA: "none"},
	} {
		s := New("listen on", "127.0.0.1:0", &http.Server{}, NewTLS("tls", files, zap.NewNop(), nil), Limits{})
		if err := s.Start(waittest.Context(t)); err == nil || err.Error() != want {
			t.Errorf("start: %v, expected %s", err, want)
		}
	}
}
