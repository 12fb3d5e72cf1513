package dev_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/cmd/scheduler/dev"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("the listener broke")

// brokenReplica shows three nodes, and breaks when the first client connects.
type brokenReplica struct {
	server *httptest.Server
	broke  sync.Once
	done   chan struct{}
}

func newBrokenReplica() *brokenReplica {
	r := &brokenReplica{done: make(chan struct{})}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	return r
}

func (r *brokenReplica) serve(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/v1/nodes" {
		fmt.Fprint(w, `{"nodes":[{},{},{}]}`)
		return
	}
	r.broke.Do(func() { close(r.done) })
	<-req.Context().Done()
}

func (r *brokenReplica) Start(context.Context) error { r.server.Start(); return nil }

func (r *brokenReplica) Stop(context.Context) error {
	http.DefaultClient.CloseIdleConnections()
	r.server.Close()
	return nil
}

func (r *brokenReplica) Submit(context.Context, string, *freeslot.Job) error { return errBroken }

func (r *brokenReplica) Addr() string          { return r.server.Listener.Addr().String() }
func (r *brokenReplica) Done() <-chan struct{} { return r.done }
func (r *brokenReplica) Err() error            { return errBroken }

// TestReplicaEndsByItself: the system ends too, with the reason. It finds the replica, so it asks
// the replica for its address and does not use port 0.
func TestReplicaEndsByItself(t *testing.T) {
	t.Parallel()
	err := dev.Run(t.Context(), dev.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: zap.NewNop(), Out: io.Discard,
		NewReplica: func(string, string, *zap.Logger) (dev.Replica, error) { return newBrokenReplica(), nil },
	})
	if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "the replica ended by itself: ") {
		t.Errorf("the system ended with %v; want %v", err, errBroken)
	}
}

// TestUnusable: one line that names the flag to change, before anything is started.
func TestUnusable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	half := t.TempDir() // a data folder whose part for Redis cannot be made
	if err := os.WriteFile(filepath.Join(half, "redis"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	var port int
	if _, err := fmt.Sscanf(taken.Listener.Addr().String(), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		adapt func(*dev.Config)
		flag  string
	}{
		"folder":       {func(c *dev.Config) { c.Dir = file }, "--dir"},
		"redis folder": {func(c *dev.Config) { c.Dir = half }, "--dir"},
		"port":         {func(c *dev.Config) { c.Listen = taken.Listener.Addr().String() }, "--listen"},
		"redis port":   {func(c *dev.Config) { c.RedisPort = port }, "--redis-port"},
		"no stand-in":  {func(c *dev.Config) { c.Embedded = true }, "`make build`"}, // beside the test there is none
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cfg := dev.Config{
				Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: zap.NewNop(), Out: &out,
				NewReplica: func(string, string, *zap.Logger) (dev.Replica, error) {
					t.Error("a replica is made")
					return nil, errBroken
				},
			}
			c.adapt(&cfg)
			err := dev.Run(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), c.flag) || strings.Contains(err.Error(), "\n") || out.Len() > 0 {
				t.Errorf("error is %v, output %q, expected one line that names %s", err, &out, c.flag)
			}
		})
	}
}
