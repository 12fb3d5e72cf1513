package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// awayCodes are answers of a server that starts, or that does not know its master yet.
var awayCodes = []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "READONLY", "MISCONF", "NOREPLICAS"}

// IsAway reports whether an error may pass by itself: no server answers, or the server cannot serve
// yet. It returns false for an answer that only another configuration changes, such as WRONGPASS.
func IsAway(err error) bool {
	if answer, ok := errors.AsType[*rueidis.RedisError](err); ok {
		code, _, _ := strings.Cut(answer.Error(), " ")
		return slices.Contains(awayCodes, code)
	}
	return !IsUntrusted(err) && (errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded))
}

// IsUntrusted reports whether an error is about TLS: the two sides do not accept each other.
func IsUntrusted(err error) bool {
	return errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, new(x509.CertificateInvalidError)) || errors.As(err, new(tls.AlertError)) ||
		errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(*tls.CertificateVerificationError))
}
