package worker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

var (
	refusedDial = &redisclient.UnreachableError{Addr: "a:1", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	errAway     = fmt.Errorf("%w: %w", &freeslot.Error{Code: freeslot.CodeUnavailable}, syscall.ECONNREFUSED)
	forbidden   = &freeslot.Error{Code: freeslot.CodePermissionDenied}
)

// TestStartWaits: while nobody answers, Start tries again. It warns once, and then each minute.
func TestStartWaits(t *testing.T) {
	passing := []error{
		refusedDial, errAway, &redisclient.UnreachableError{Addr: "a:1", Err: io.EOF}, &net.DNSError{Err: "no such host", Name: "redis"},
		&freeslot.Error{Code: freeslot.CodeOverloaded}, fmt.Errorf("start: %w", script.ErrMissing), context.DeadlineExceeded,
		gatewayclient.Errors{errAway, fmt.Errorf("%w: %w", errAway, gatewayclient.ErrNoGateway)},
	}
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		w, f := newFakeWorker(t, func(c *Config) { c.ExitUnreachable, c.Logger = false, zap.New(core) })
		open, attempts := w.open, 0
		w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
			w.cfg.Logger.Warn("an attempt's own") // as an opened store logs
			if attempts++; attempts <= 100 {
				return nil, nil, passing[attempts%len(passing)]
			}
			return open(ctx)
		}
		begun := time.Now()
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if attempts != 101 || f.registered != 1 {
			t.Errorf("%d attempts, and %d nodes, expected 101 and 1", attempts, f.registered)
		}
		took := time.Since(begun) // virtual
		if n, most := logs.FilterMessage("node.connect_failed").Len(), int(took/time.Minute)+1; n < 1 || n > most {
			t.Errorf("%d warnings in %s, expected 1 to %d", n, took, most)
		}
		if n := logs.FilterMessage("an attempt's own").Len(); n != 1 {
			t.Errorf("%d attempts logged the same, expected 1", n)
		}
		if w.cfg.Logger.Warn("an attempt's own"); logs.FilterMessage("an attempt's own").Len() != 2 {
			t.Error("a worker that has started logs less than before")
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStartDoesNotWait: what only another configuration mends fails the start at once, and so does
// everything with ExitUnreachable.
func TestStartDoesNotWait(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		exit bool
	}{
		"token":          {forbidden, false},
		"one of several": {gatewayclient.Errors{errAway, forbidden}, false},
		"no gateway":     {fmt.Errorf("%w: %w", &freeslot.Error{Code: freeslot.CodeUnavailable}, gatewayclient.ErrNoGateway), false},
		"certificate":    {fmt.Errorf("%w: %w", &freeslot.Error{Code: freeslot.CodeUnavailable}, x509.UnknownAuthorityError{}), false},
		"file":           {fmt.Errorf("folder: %w", syscall.ENOENT), false},
		"of Redis":       {&redisclient.UnreachableError{Addr: "a:1", Err: x509.UnknownAuthorityError{}}, false},
		"password":       {&redisclient.UnreachableError{Addr: "a:1", Err: errors.New("WRONGPASS invalid")}, false},
		"asked for":      {refusedDial, true},
	} {
		w, _ := newFakeWorker(t, func(c *Config) { c.ExitUnreachable = test.exit })
		w.open = func(context.Context) (store, func(context.Context) error, error) { return nil, nil, test.err }
		if err := w.Start(t.Context()); err == nil || err.Error() != test.err.Error() {
			t.Errorf("%s: %v, expected %v", name, err, test.err)
		}
		<-w.Done()
	}
}

// TestWaitingStartEnds with its context, and by Stop. Neither waits for an attempt that hangs.
func TestWaitingStartEnds(t *testing.T) {
	for _, by := range []string{"context", "stop", "stop in an attempt"} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newFakeWorker(t, func(c *Config) { c.ExitUnreachable = false })
			attempts := 0
			w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
				if attempts++; attempts > 5 && by == "stop in an attempt" {
					<-ctx.Done()
				}
				return nil, nil, refusedDial
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started := make(chan error, 1)
			go func() { started <- w.Start(ctx) }()
			time.Sleep(20 * time.Second)
			synctest.Wait()
			at := time.Now()
			if by == "context" {
				cancel()
			} else if err := w.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-started; !errors.Is(err, refusedDial) || !time.Now().Equal(at) {
				t.Errorf("%s: %v after %s, expected the last error at once", by, err, time.Since(at))
			}
			if err := w.Start(t.Context()); !errors.Is(err, ErrStopped) {
				t.Errorf("%s: a second start: %v", by, err)
			}
		})
	}
}

// TestStartBeforeRedis: the metrics of attempts that failed are not in the way of the next one.
func TestStartBeforeRedis(t *testing.T) {
	t.Parallel()
	directOnly(t, "the gateway has its own Redis")
	redis := redistest.New(t)
	redis.Kill()
	core, logs := observer.New(zap.DebugLevel)
	w, err := New(Config{
		RedisURL: redis.URL(), Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}, Collectors: []Collection{},
		Logger: zap.New(core), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- w.Start(context.Background()) }()
	failures := func() any { return logs.FilterMessage("node.connect_failed").Len() }
	waittest.Until(t, "several attempts fail", func() bool { return failures().(int) > 2 }, failures)
	redis.Restart()
	newReplica(t, redis.Target, "scheduler")
	if err := waittest.Receive(t, "the start", started, failures); err != nil {
		t.Fatal(err)
	}
	if n := logs.FilterMessage("node.connected").Len(); n != 1 {
		t.Errorf("%d lines say that Redis answers, expected 1", n)
	}
	if err := w.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
