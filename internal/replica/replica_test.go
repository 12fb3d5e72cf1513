package replica

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
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

// start starts a replica with a context that ends right after the start, which must not end a loop.
func start(t *testing.T, r *Replica) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
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

// TestSingleReplicaFollowsVersion1: a replica that is alone from the start copies the instances of
// the registry's first version.
func TestSingleReplicaFollowsVersion1(t *testing.T) {
	t.Parallel()
	redis, cfg := redistest.Shared(t), configured(t)
	cfg.Registry.V1.Enabled, cfg.Registry.V1.KeyPrefix = true, cfg.Redis.KeyPrefix+":old"
	client, old := redis.Client(t), cfg.Registry.V1.KeyPrefix
	do := func(command, key string, args ...string) {
		t.Helper()
		ctx := waittest.Context(t)
		if err := client.Do(ctx, client.B().Arbitrary(command).Keys(key).Args(args...).Build()).Error(); err != nil {
			t.Fatal(command, key, err)
		}
	}
	do("HSET", old+":services:asr:a", "host", "192.168.1.100", "port", "8080", "healthy", "true")
	do("SADD", old+":service_instances:asr", "a")
	r := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	start(t, r)
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	store, beats := registry.NewStore(client, cfg.Redis.KeyPrefix, false, zap.NewNop()), 0
	waittest.Until(t, "the copy of instance a", func() bool {
		beats++
		do("ZADD", old+":heartbeat:asr", strconv.Itoa(beats), "a")
		d, _, err := store.Instance(t.Context(), "asr", "a")
		return err == nil && d.Origin == registry.OriginV1
	})
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
		start(t, r)
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
		waittest.Until(t, "the replicas "+want, func() bool {
			resp, err := http.Get("http://" + first.Addr() + "/v1/replicas")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got = strings.TrimSpace(string(body))
			return err == nil && got == want
		}, func() any { return got })
	}
	sees(`{"replicas":[{"id":"r1","url":"http://127.0.0.1:7481"},{"id":"r2","url":"http://127.0.0.1:7482"}]}`)
	if err := second.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	sees(`{"replicas":[{"id":"r1","url":"http://127.0.0.1:7481"}]}`)
}
