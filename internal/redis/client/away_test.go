package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestIsAway: only what a connection to Redis can meet may pass by itself, no other error of the
// operating system.
func TestIsAway(t *testing.T) {
	t.Parallel()
	op := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	refused := op("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED))
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"refused":            {refused, true},
		"wrapped":            {fmt.Errorf("redis: %w", errors.Join(refused, refused)), true},
		"reset":              {op("read", syscall.ECONNRESET), true},
		"broken pipe":        {op("write", syscall.EPIPE), true},
		"timeout":            {op("read", os.ErrDeadlineExceeded), true},
		"no answer":          {context.DeadlineExceeded, true},
		"no such host":       {&net.DNSError{Err: "no such host", Name: "redis"}, true},
		"host of a dial":     {op("dial", &net.DNSError{Err: "no such host", Name: "redis"}), true},
		"closed":             {io.EOF, true},
		"taken port":         {op("listen", os.NewSyscallError("bind", syscall.EADDRINUSE)), false},
		"closed listener":    {op("accept", net.ErrClosed), false},
		"bare errno":         {syscall.ECONNREFUSED, false},
		"missing file":       {&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, false},
		"folder":             {&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.EACCES}, false},
		"full disk":          {os.NewSyscallError("write", syscall.ENOSPC), false},
		"interrupted":        {syscall.EINTR, false},
		"unknown authority":  {x509.UnknownAuthorityError{}, false},
		"our certificate":    {op("remote error", errors.New("tls: certificate required")), false},
		"server's TLS":       {op("local error", errors.New("tls: protocol version not supported")), false},
		"any other":          {errors.New("no"), false},
		"cancelled":          {context.Canceled, false},
		"refusal and a dial": {errors.Join(refused, x509.UnknownAuthorityError{}), false},
	} {
		if got := IsAway(test.err); got != test.want {
			t.Errorf("%s: %v counts as away: %t, expected %t", name, test.err, got, test.want)
		}
	}
}
