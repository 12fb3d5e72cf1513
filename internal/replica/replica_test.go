package replica

import (
	"context"
	"net"
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
