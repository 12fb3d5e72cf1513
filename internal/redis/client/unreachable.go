package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// UnreachableError is returned if the server of a URL cannot be used. The caller adds the name of
// the setting with the URL.
type UnreachableError struct {
	// Addr is the URL without its credentials.
	Addr string
	Err  error
}

func (e *UnreachableError) Error() string {
	return "redis at " + e.Addr + " cannot be used: " + e.Err.Error()
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// newClient is rueidis.NewClient with advice in its errors.
func newClient(opt rueidis.ClientOption) (rueidis.Client, error) {
	var bySentinel atomic.Bool // true if the last connection, the one that failed, was to a sentinel
	next := opt.DialCtxFn
	opt.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, conf *tls.Config) (net.Conn, error) {
		bySentinel.Store(dialer.Resolver == toSentinel)
		return next(ctx, addr, dialer, conf)
	}
	client, err := rueidis.NewClient(opt)
	// Only the text distinguishes this error from others.
	if err != nil && strings.Contains(err.Error(), "received unknown message type") {
		return nil, fmt.Errorf("what answers there is not Redis, or expects TLS (rediss://): %w", err)
	}
	if err != nil {
		return nil, explainAccess(err, opt, bySentinel.Load())
	}
	return client, nil
}
