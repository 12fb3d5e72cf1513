package listener

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
)

// Files names the files, in PEM, by which a server and its callers prove who they are.
type Files struct {
	// Cert and Key are the server's. Without them it speaks plain HTTP.
	Cert, Key string
	// ClientCA holds the authorities that must have signed the callers' certificates. Empty:
	// callers need none.
	ClientCA string
}

// TLS reads Files at the start, and at a handshake when one of them has changed. It is safe for
// concurrent use.
type TLS struct {
	setting string
	files   Files
	log     *zap.Logger
	refused prometheus.Counter
	expires prometheus.Gauge

	mu     sync.Mutex // guards the fields that follow
	inUse  *tls.Config
	stamps [3]stamp // of the files when they were read
}

// stamp changes when a file is written.
type stamp struct {
	at   time.Time
	size int64
}

// NewTLS does no I/O. setting is the section of the configuration that names the files, for errors,
// log and metrics. reg may be nil. The metrics exist only if there is a certificate.
func NewTLS(setting string, files Files, log *zap.Logger, reg prometheus.Registerer) *TLS {
	t := &TLS{setting: setting, files: files, log: log}
	if files.Cert == "" {
		return t
	}
	auto, label := promauto.With(reg), prometheus.Labels{"setting": setting}
	t.refused = auto.NewCounter(prometheus.CounterOpts{
		Name: "freeslot_tls_refused_total", ConstLabels: label,
		Help: "Changes of a listener's TLS files that could not be used, so that the former files stay in use.",
	})
	t.expires = auto.NewGauge(prometheus.GaugeOpts{
		Name: "freeslot_tls_certificate_expiry_timestamp_seconds", ConstLabels: label,
		Help: "When the certificate that a listener shows expires, in seconds since 1970.",
	})
	return t
}

// Config reads the files. It returns nil without a certificate, or if t is nil.
func (t *TLS) Config() (*tls.Config, error) {
	if t == nil || t.files.Cert == "" {
		return nil, nil
	}
	if _, err := t.current(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: t.current}, nil
}

// Setting returns the section of the configuration that names the files.
func (t *TLS) Setting() string { return t.setting }

// Expiry returns when the certificate in use expires; false without one.
func (t *TLS) Expiry() (time.Time, bool) {
	if t == nil {
		return time.Time{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inUse == nil {
		return time.Time{}, false
	}
	return t.inUse.Certificates[0].Leaf.NotAfter, true
}

// current keeps what is in use if changed files cannot be used: one may have been written before
// the other.
func (t *TLS) current(*tls.ClientHelloInfo) (*tls.Config, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stamps := [3]stamp{stampOf(t.files.Cert), stampOf(t.files.Key), stampOf(t.files.ClientCA)}
	if t.inUse != nil && stamps == t.stamps {
		return t.inUse, nil
	}
	cfg, err := t.read()
	switch {
	case err == nil:
		if t.inUse != nil {
			t.log.Info("listener.tls_read", zap.String("setting", t.setting))
		}
		t.inUse = cfg
		t.expires.Set(float64(cfg.Certificates[0].Leaf.NotAfter.Unix()))
	case t.inUse == nil:
		return nil, err
	default:
		t.refused.Inc()
		t.log.Error("listener.tls_refused", zap.String("setting", t.setting), zap.Error(err))
	}
	t.stamps = stamps
	return t.inUse, nil
}

func (t *TLS) read() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.files.Cert, t.files.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.setting, err)
	}
	// Sessions are WebSockets, which HTTP/2 does not carry.
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{cert},
	}
	if t.files.ClientCA == "" {
		return cfg, nil
	}
	data, err := os.ReadFile(t.files.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("%s.client_ca_file: %w", t.setting, err)
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		return nil, fmt.Errorf("%s.client_ca_file %s holds no certificate in PEM", t.setting, t.files.ClientCA)
	}
	return cfg, nil
}

// stampOf returns the zero value for a missing file.
func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}
