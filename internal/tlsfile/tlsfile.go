// Package tlsfile holds what a caller of another program needs for TLS, by the files that have it:
// the same for Redis, replicas and gateways.
package tlsfile

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"

	"github.com/freeslot/freeslot"
)

// Files tells how servers prove who they are, and how this process does if they ask. The zero value
// trusts the authorities of the system, and has no certificate.
type Files struct {
	// CAFile holds the certificates, in PEM, of the authorities that may sign the servers'; "" for
	// the system's.
	CAFile string
	// CertFile and KeyFile hold the process' own certificate and its key, in PEM.
	CertFile, KeyFile string
	// ServerName is the name in the servers' certificates; "" for the host of each connection.
	ServerName string
}

// Check reads the files, and returns everything that is wrong with them. field is the name of the
// setting, such as "redis.tls"; "" if its parts have names without it.
func (f Files) Check(field string) (found freeslot.FieldErrors) {
	if (f.CertFile == "") != (f.KeyFile == "") {
		found.Addf(at(field, "cert_file"), "and %s go together, expected both or none", at(field, "key_file"))
	} else if f.CertFile != "" {
		_, err := f.certificate(field)
		found.Add(err)
	}
	_, err := f.roots(field)
	found.Add(err)
	return found
}

// Config returns the configuration of connections. It reads the authorities at once, and the
// process' own certificate at each connection that asks for it. The error is an *freeslot.Error
// that names the field, as with Check; the same holds for the certificate that can no longer be
// read.
func (f Files) Config(field string) (*tls.Config, error) {
	if err := f.Check(field).Err(); err != nil {
		return nil, err
	}
	roots, err := f.roots(field)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: f.ServerName}
	if f.CertFile != "" {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return f.certificate(field)
		}
	}
	return conf, nil
}

func (f Files) certificate(field string) (*tls.Certificate, error) {
	for _, of := range [][2]string{{"cert_file", f.CertFile}, {"key_file", f.KeyFile}} {
		if _, err := os.ReadFile(of[1]); err != nil {
			return nil, freeslot.Invalid(at(field, of[0]), "cannot be read: %s", Cause(err))
		}
	}
	pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	if err != nil {
		return nil, freeslot.Invalid(
			at(field, "cert_file"), "and %s are no certificate with its key in PEM: %v", at(field, "key_file"), err,
		)
	}
	return &pair, nil
}

// roots returns nil for the system's authorities.
func (f Files) roots(field string) (*x509.CertPool, error) {
	if f.CAFile == "" {
		return nil, nil //nolint:nilnil // see above
	}
	data, err := os.ReadFile(f.CAFile)
	if err != nil {
		return nil, freeslot.Invalid(at(field, "ca_file"), "cannot be read: %s", Cause(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		return nil, freeslot.Invalid(at(field, "ca_file"), "names %s, which has no certificate in PEM", f.CAFile)
	}
	return pool, nil
}

func at(field, part string) string {
	if field == "" {
		return part
	}
	return field + "." + part
}

// Cause returns a text with the file that could not be read, and why.
func Cause(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Path + ": " + path.Err.Error()
	}
	return err.Error()
}
