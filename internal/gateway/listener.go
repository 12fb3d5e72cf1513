package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
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
	// maxSilent is the number of open connections that may not have sent a request yet.
	maxSilent = 256
)

// ListenerConfig describes a listener for agents alone.
type ListenerConfig struct {
	// Listen is host:port; port 0 takes any free one.
	Listen string
	// CertFile and KeyFile (PEM) hold its certificate, and are read again when they have changed.
	// Without them it speaks plain HTTP.
	CertFile, KeyFile string
	// ClientCAFile (PEM) holds the authorities that must have signed the agents' certificates.
	// Empty: agents need no certificate.
	ClientCAFile string
}

// Listener serves a handler to agents. It is safe for concurrent use.
type Listener struct {
	*listener.Server

	mu     sync.Mutex // guards silent
	silent map[net.Conn]struct{}
}

// NewListener makes a listener. It does no I/O.
func NewListener(cfg ListenerConfig, h http.Handler, log *zap.Logger) *Listener {
	l := &Listener{silent: make(map[net.Conn]struct{})}
	l.Server = listener.New("gateway.listen", cfg.Listen, &http.Server{
		Handler: linger.Handler(h), ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: listenerWrite,
		IdleTimeout:    listenerIdle,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: zap.NewStdLog(log.Named("http")), ConnState: l.count,
		// Sessions are WebSockets, which HTTP/2 does not carry.
		TLSNextProto: make(map[string]func(*http.Server, *tls.Conn, http.Handler)),
	}, func() (*tls.Config, error) { return cfg.tls(log) })
	return l
}

// Stop is [listener.Server.Stop] with an error that names the gateway.
func (l *Listener) Stop(ctx context.Context) error {
	if err := l.Server.Stop(ctx); err != nil {
		return fmt.Errorf("stop gateway's listener: %w", err)
	}
	return nil
}

// count closes connections beyond maxSilent that have sent nothing: strangers must not use up the
// process's files.
func (l *Listener) count(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	full := state == http.StateNew && len(l.silent) >= maxSilent
	if state == http.StateNew && !full {
		l.silent[conn] = struct{}{}
	} else {
		delete(l.silent, conn)
	}
	l.mu.Unlock()
	if full {
		_ = conn.Close()
	}
}

// tls returns nil if there is no certificate.
func (c *ListenerConfig) tls(log *zap.Logger) (*tls.Config, error) {
	if c.CertFile == "" {
		return nil, nil
	}
	own := &certificate{certFile: c.CertFile, keyFile: c.KeyFile, log: log}
	if _, err := own.get(nil); err != nil {
		return nil, fmt.Errorf("gateway.tls: %w", err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: own.get, NextProtos: []string{"http/1.1"}}
	if c.ClientCAFile == "" {
		return cfg, nil
	}
	data, err := os.ReadFile(c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("gateway.tls.client_ca_file: %w", err)
	}
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		return nil, fmt.Errorf("gateway.tls.client_ca_file %s holds no certificate in PEM", c.ClientCAFile)
	}
	return cfg, nil
}

// certificate is read again at a handshake when one of its files has changed.
type certificate struct {
	certFile, keyFile string
	log               *zap.Logger

	mu     sync.Mutex // guards the fields that follow
	loaded *tls.Certificate
	stamps [2]fileStamp // of the files when they were read
}

type fileStamp struct {
	at   time.Time
	size int64
}

// get keeps the certificate that it has if the new files cannot be used: one may have been written
// before the other.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamps := [2]fileStamp{stampOf(c.certFile), stampOf(c.keyFile)}
	if c.loaded != nil && stamps == c.stamps {
		return c.loaded, nil
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	switch {
	case err == nil:
		c.loaded = &cert
	case c.loaded == nil:
		return nil, err
	default:
		c.log.Error("gateway.certificate_refused", zap.String("file", c.certFile), zap.Error(err))
	}
	c.stamps = stamps
	return c.loaded, nil
}

// stampOf returns the zero value for a missing file.
func stampOf(file string) fileStamp {
	info, err := os.Stat(file)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.ModTime(), info.Size()}
}
