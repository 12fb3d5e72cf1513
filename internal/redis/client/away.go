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
var awayCodes = []string{
	"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "READONLY", "MISCONF", "NOREPLICAS",
}

// IsAway reports whether an error may pass by itself: no server answers, or the server cannot serve
// yet. It returns false for an answer that only another configuration changes, such as WRONGPASS.
func IsAway(err error) bool {
	if answer, ok := errors.AsType[*rueidis.RedisError](err); ok {
		code, _, _ := strings.Cut(answer.Error(), " ")
		return slices.Contains(awayCodes, code)
	}
	return !IsUntrusted(err) && (isOp(err, "dial", "read", "write") || errors.As(err, new(*net.DNSError)) ||
		errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded))
}

// isOp reports whether an error is of a connection, in one of these operations. A failed listener
// is a net.OpError too, and each error number of the operating system is a net.Error.
func isOp(err error, ops ...string) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && slices.Contains(ops, op.Op)
}

// IsUntrusted reports whether an error is about TLS: the two sides do not accept each other.
func IsUntrusted(err error) bool {
	return errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, new(x509.CertificateInvalidError)) || errors.As(err, new(tls.AlertError)) ||
		errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(*tls.CertificateVerificationError)) ||
		isOp(err, "remote error", "local error") // alerts of TLS
}
