package healthcheck

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// TLS tells how the service proves its identity to the agent, and the agent to the service. The
// zero value, and nil, trust the system's authorities and the name in the URL or address.
type TLS struct {
	// The authorities to trust in place of the system's (PEM).
	CAFile string `koanf:"ca_file"`
	// The name that the service's certificate must have. Unset: the host of the URL or address.
	ServerName string `koanf:"server_name"`
	// The agent's own certificate (PEM).
	CertFile string `koanf:"cert_file"`
	// The key of `cert_file` (PEM).
	KeyFile string `koanf:"key_file"`
	// With `true` any certificate is accepted, so that any program can answer for the service.
	InsecureSkipVerify bool `koanf:"insecure_skip_verify"`
}

// Validate records what is wrong with the settings and their files, which it reads.
func (t *TLS) Validate(at string, p *config.Problems) {
	if t == nil {
		return
	}
	if t.CAFile != "" {
		_, err := t.authorities()
		p.Add(at+".ca_file", err)
	}
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		p.Addf(at+".key_file", "is missing beside cert_file, expected both or neither")
	case t.CertFile == "" && t.KeyFile != "":
		p.Addf(at+".cert_file", "is missing beside key_file, expected both or neither")
	case t.CertFile != "":
		_, certErr := config.ReadFile(t.CertFile)
		_, keyErr := config.ReadFile(t.KeyFile)
		p.Add(at+".cert_file", certErr)
		p.Add(at+".key_file", keyErr)
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil && certErr == nil && keyErr == nil {
			p.Addf(at+".cert_file", "is %q, which cannot be used with key_file %q: %v", t.CertFile, t.KeyFile, fileCause(err))
		}
	}
	for _, other := range []struct{ name, value string }{{"ca_file", t.CAFile}, {"server_name", t.ServerName}} {
		if t.InsecureSkipVerify && other.value != "" {
			p.Addf(
				at+".insecure_skip_verify", "is set beside %s, which it would make meaningless, expected one of them", other.name,
			)
		}
	}
}

// config reads the files. The caller owns the result.
func (t *TLS) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if t == nil {
		return cfg, nil
	}
	cfg.ServerName = t.ServerName
	cfg.InsecureSkipVerify = t.InsecureSkipVerify
	if t.CAFile != "" {
		pool, err := t.authorities()
		if err != nil {
			return nil, fmt.Errorf("ca_file %w", err)
		}
		cfg.RootCAs = pool
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file is %q, which cannot be used: %w", t.CertFile, fileCause(err))
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// authorities returns an error that continues a sentence that begins with the key.
func (t *TLS) authorities() (*x509.CertPool, error) {
	pem, err := config.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("is %q, which has no certificate in PEM form", t.CAFile)
	}
	return pool, nil
}

// fileCause returns the error without the operation, but with the name of the file.
func fileCause(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", file.Path, file.Err)
	}
	return err
}
