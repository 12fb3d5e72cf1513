package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// silent is a server that takes connections and answers nothing. asked is closed at the first one.
func silent(t *testing.T) (addr string, asked <-chan struct{}) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if n == 0 {
				close(first)
			}
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().String(), first
}

// A list server that does not answer holds up no other one, and no caller beyond its deadline.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	ctx := waittest.Context(t)
	addr, asked := silent(t)
	env := &feature.Env{Log: zaptest.NewLogger(t)}
	env.Config.Redis.URL, env.Config.Redis.KeyPrefix = redistest.Shared(t).URL(), "p"
	env.Config.Lists.Servers = map[string]config.ListServer{"silent": {URL: "redis://" + addr}}
	s := newServers(env)
	t.Cleanup(s.close)

	short, giveUp := context.WithCancel(ctx)
	opened := make(chan error, 1)
	go func() { _, err := s.open(short, "silent"); opened <- err }()
	select {
	case <-asked:
	case <-ctx.Done():
		t.Fatal("the silent server was not asked")
	}
	if _, err := s.open(ctx, ""); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-opened:
		t.Fatalf("the other server was opened only after the silent one: %v", err)
	default:
	}
	giveUp()
	if err := <-opened; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller gave up: %v", err)
	}
	if _, err := s.open(ctx, "other"); freeslot.CodeOf(err) != freeslot.CodeUnavailable ||
		!strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a server that is not configured: %v", err)
	}
}
