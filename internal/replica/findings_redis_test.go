package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// began starts a replica that is stopped when the test ends.
func began(t *testing.T, cfg config.Replica) *Replica {
	t.Helper()
	r := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	start(t, r)
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v; want nil", err)
		}
	})
	return r
}

// untilFound waits until a replica's finding with this id is as like accepts it. It is nil while
// there is none.
func untilFound(t *testing.T, r *Replica, id string, like func(f *finding.Finding) bool) {
	t.Helper()
	untilFoundAs(t, r, "", id, like)
}

// untilFoundAs is untilFound for a replica that asks for a token.
func untilFoundAs(t *testing.T, r *Replica, token, id string, like func(f *finding.Finding) bool) {
	t.Helper()
	var report finding.Report
	waittest.Until(t, "the expected finding "+id, func() bool {
		got := sendBody(t, r, http.MethodGet, "/v1/findings", "", token)
		report = finding.Report{}
		if err := json.Unmarshal([]byte(got.text), &report); got.status != http.StatusOK || err != nil {
			t.Fatalf("the findings are %d %s, %v; want a report", got.status, got.text, err)
		}
		i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool { return f.ID == id })
		if i < 0 {
			return like(nil)
		}
		return like(&report.Findings[i])
	}, func() any { return report })
}

func gone(f *finding.Finding) bool { return f == nil }

// TestRedisMemoryFound: a server that comes near its maxmemory is told before submits are refused,
// as critical from then on, and not any more once the limit is raised.
func TestRedisMemoryFound(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	cfg := configured(t)
	cfg.Redis.URL = redis.URL()
	r, client := began(t, cfg), redis.Client(t)
	limit := func(share float64) {
		t.Helper()
		info, err := client.Do(waittest.Context(t), client.B().Info().Section("memory").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		_, used, _ := strings.Cut(info, "used_memory:")
		used, _, _ = strings.Cut(used, "\r")
		n, err := strconv.ParseFloat(used, 64)
		if err != nil {
			t.Fatal(err)
		}
		set := client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", strconv.Itoa(int(n/share))).Build()
		if err := client.Do(waittest.Context(t), set).Error(); err != nil {
			t.Fatal(err)
		}
	}
	ratio := func(begin string) {
		t.Helper()
		const name = "\nfreeslot_redis_memory_ratio "
		var text string
		waittest.Until(t, "the ratio to begin with "+begin, func() bool {
			text = sendBody(t, r, http.MethodGet, "/metrics", "", "").text
			return strings.Contains(text, name) == (begin != "") && strings.Contains(text, name+begin) == (begin != "")
		}, func() any { return text })
	}
	untilFound(t, r, "redis.memory", gone)
	ratio("")
	limit(0.75)
	ratio("0.7")
	untilFound(t, r, "redis.memory", func(f *finding.Finding) bool {
		return f != nil && f.Severity == finding.Warning && len(f.Names) == 1 && strings.HasSuffix(f.Names[0], " %)") &&
			f.Text == "1 server of Redis uses 70 % of maxmemory or more; submits are refused from 80 % on"
	})
	limit(0.9)
	untilFound(t, r, "redis.memory", func(f *finding.Finding) bool { return f != nil && f.Severity == finding.Critical })
	limit(0.1)
	untilFound(t, r, "redis.memory", gone)
}

// TestLaggingReplicaFound: a replica of Redis that hangs is told, until it answers again.
func TestLaggingReplicaFound(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	cfg := configured(t)
	cfg.Redis.URL = redis.URL()
	r := began(t, cfg)
	untilFound(t, r, "redis.replicas", gone)
	redis.Replicas[0].Pause()
	untilFound(t, r, "redis.replicas", func(f *finding.Finding) bool {
		return f != nil && slices.Equal(f.Names, redis.Replicas[0].Addrs()) &&
			f.Text == "1 replica of Redis does not keep up with the master: a failover would lose the newest changes"
	})
	redis.Replicas[0].Resume()
	untilFound(t, r, "redis.replicas", gone)
}

// TestFullServers: each server is named once however many cells it has, and at most ten are.
func TestFullServers(t *testing.T) {
	t.Parallel()
	var loads []*dispatch.CellLoad
	for i := range 24 {
		loads = append(loads, &dispatch.CellLoad{ServerLoad: cell.ServerLoad{
			UsedBytes: 75, LimitBytes: 100, Run: fmt.Sprint("run", i/2),
		}})
	}
	loads = append(loads, nil, &dispatch.CellLoad{ServerLoad: cell.ServerLoad{UsedBytes: 75, Run: "unlimited"}})
	servers := redisServers(config.Replica{}, true, loads)
	got := full(servers, 0.75)
	const want = "warning redis.memory: 12 servers of Redis use 75 % of maxmemory or more; submits are refused from 80 % on"
	if said(got) != want || len(got[0].Names) != finding.MaxNames || got[0].Names[1] != "cell 2 3 (75 %)" {
		t.Errorf("found %s, %q; want %s, and ten names by cells", said(got), got[0].Names, want)
	}
	for _, share := range []float64{0, 0.76} {
		if got := said(full(servers, share)); got != "" {
			t.Errorf("from a share of %v on, found %s; want nothing", share, got)
		}
	}
}
