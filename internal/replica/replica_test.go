package replica

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/config"
	"github.com/freeslot/freeslot/internal/redis/redistest"
	"github.com/freeslot/freeslot/internal/redis/redistest/acltest"
	"github.com/freeslot/freeslot/internal/script"
)

func TestMain(m *testing.M) {
	acltest.Main(m, script.RoleReplica, Access()...)
} // which finds goroutines that are left

func configured(t *testing.T) config.Replica {
	t.Helper()
	redis := redistest.Shared(t)
	cfg := config.DefaultReplica()
	cfg.Listen, cfg.DrainTimeout = "127.0.0.1:0", 10*time.Second
	cfg.Redis.URL, cfg.Redis.KeyPrefix = redis.URL(), redis.Prefix(t)
	return cfg
}

// TestFailedStart: what was started before the failure is stopped, also where the time is over.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	cfg := configured(t)
	cfg.Listen = taken.Addr().String()
	if err := New(cfg, zap.NewNop(), prometheus.NewRegistry()).Start(t.Context()); err == nil {
		t.Error("no error although the port is taken")
	}
	cfg = configured(t)
	cfg.Lists.Dir = filepath.Join(os.DevNull, "nowhere")
	if err := New(cfg, zap.NewNop(), prometheus.NewRegistry()).Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "lists.dir ") {
		t.Errorf("a folder of lists that cannot be made: %v, expected lists.dir to be named", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(configured(t), zap.NewNop(), prometheus.NewRegistry()).Start(ended); err == nil {
		t.Error("no error although the context has ended")
	}
}

func TestStopTwiceAndNeverStarted(t *testing.T) {
	t.Parallel()
	never := New(configured(t), zap.NewNop(), prometheus.NewRegistry())
	r := New(configured(t), zap.NewNop(), prometheus.NewRegistry())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, stop := range []func(context.Context) error{never.Stop, r.Stop, r.Stop} {
		if err := stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestAdvertised: a replica that advertises itself is in the list of replicas, which any of them
// has, until it stops.
func TestAdvertised(t *testing.T) {
	t.Parallel()
	cfg := configured(t)
	begin := func(id, advertise string) *Replica {
		t.Helper()
		own := cfg
		own.ReplicaID, own.Advertise = id, advertise
		r := New(own, zap.NewNop(), prometheus.NewRegistry())
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	first := begin("r1", "http://127.0.0.1:7481")
	second := begin("r2", "http://127.0.0.1:7482")
	begin("r3", "")
	sees := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			resp, err := http.Get("http://" + first.Addr() + "/v1/replicas")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if got = strings.TrimSpace(string(body)); err == nil && got == want {
				return
			}
		}
		t.Errorf("the replicas are %s, expected %s", got, want)
	}
	sees(`{"replicas":[{"id":"r1","url":"http://127.0.0.1:7481"},{"id":"r2","url":"http://127.0.0.1:7482"}]}`)
	if err := second.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	sees(`{"replicas":[{"id":"r1","url":"http://127.0.0.1:7481"}]}`)
}
