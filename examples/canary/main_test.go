package main

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

//go:embed canary.json
var document string

func TestMain(m *testing.M) { redistest.Main(m) }

// TestCanary: without a chain all users get v1; with it the share that it names gets v2.
func TestCanary(t *testing.T) {
	t.Parallel()
	redis, ctx := redistest.Shared(t), waittest.Context(t)
	cfg := config.DefaultReplica()
	cfg.Listen, cfg.ReplicaID, cfg.Lists.Dir = "127.0.0.1:0", "r1", t.TempDir()
	cfg.Redis.URL = redis.AdminURL()
	cfg.TenantDefaults.Admission = config.Admission{
		Chain: "canary", Mode: config.AdmissionEnforce, Subject: config.SubjectAffinityKey,
	}
	redis.Age(t, cfg.Redis.KeyPrefix+":version:nodes")
	r := replica.New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), prometheus.NewRegistry())
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(waittest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	answered := func() string {
		t.Helper()
		var out strings.Builder
		if err := run(ctx, &out, cfg.Redis.URL, "http://"+r.Addr(), 100); err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`; the last job is .*`).ReplaceAllString(out.String(), "")
	}
	if got, want := answered(), "v1 answers 100 of 100 users, such as user-1, user-2, user-3\n"; got != want {
		t.Fatalf("without a chain: %q; want %q", got, want)
	}
	control := lists.NewControl(redis.Client(t), cfg.Redis.KeyPrefix, false, zaptest.NewLogger(t), nil)
	if _, err := control.Create(ctx, "testers", lists.Spec{}); err != nil {
		t.Fatal(err)
	}
	if _, err := control.PutChain(ctx, lists.ChainPut{Chain: "canary", Document: document, Lists: []string{"testers"}}); err != nil {
		t.Fatal(err)
	}
	few := regexp.MustCompile(`v1 answers 9\d of 100 .*\nv2 answers \d of 100 users, such as user-1, `)
	waittest.Until(t, "v2 for about 5 % of the users", func() bool { return few.MatchString(answered()) })
}
