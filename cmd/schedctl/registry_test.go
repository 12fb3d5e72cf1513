package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/server"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestRegistry: what operators see of services, and do about them.
func TestRegistry(t *testing.T) {
	t.Parallel()
	l := start(t)
	p, err := registry.NewProvider(registry.Options{RedisURL: l.url, KeyPrefix: l.prefix, StopPause: -1})
	must(t, err)
	must(t, p.Start(t.Context()))
	t.Cleanup(func() { must(t, p.Stop(context.Background())) })
	for i, id := range []string{"a/1", "b"} {
		must(t, p.Register(t.Context(), registry.Registration{Service: "shop", ID: id, Port: 8080 + i, Metadata: map[string]string{"zone": "z" + id}}))
	}
	l.ctl(t, "registry", "put", "db", "--host", "10.0.0.7", "--port", "5432", "--label", "role=main").expect(t, exitOK, "revision 1")
	l.ctl(t, "registry", "services").expect(t, exitOK, "SERVICE", "db", "shop", "2m0s")
	l.ctl(t, "registry", "services", "--nodes").expect(t, exitOK, "SERVICE", "NODE")
	l.ctl(t, "registry", "instances", "shop").expect(t, exitOK, "a/1", "127.0.0.1:8080", "well", "127.0.0.1:8081")
	if got := l.ctl(t, "registry", "instances", "shop", "--label", "zone=zb").expect(t, exitOK, "8081"); strings.Contains(got.out, "8080") {
		t.Error(got.out)
	}
	l.ctl(t, "registry", "instances", "shop", "--metric", "cpu.usage <").expect(t, exitFailure, "invalid_argument", "metrics[0]")
	l.ctl(t, "registry", "show", "shop").expect(t, exitOK, "2: 2 healthy", "heartbeat delay")
	l.ctl(t, "registry", "show", "shop", "a/1").expect(t, exitOK, "a/1 of shop", "label zone", "za/1")
	l.ctl(t, "registry", "show", "shop", "none").expect(t, exitFailure, "not_found")
	l.ctl(t, "registry", "metrics", "shop", "a/1").expect(t, exitOK, "{}")
	l.ctl(t, "registry", "set", "shop", "a/1", "--no-enabled", "--weight", "3", "--note", "broken disk", "--author", "ann").expect(t, exitOK, "a/1 of shop is set with revision 3")
	l.ctl(t, "registry", "health", "shop").expect(t, exitOK, "is disabled", "and 1 is well")
	l.ctl(t, "registry", "health").expect(t, exitOK, "and 2 are well")
	l.ctl(t, "registry", "instances", "shop").expect(t, exitOK, "disabled (set by default/ann)")
	l.ctl(t, "registry", "reset", "shop", "a/1").expect(t, exitOK, "is reset")
	l.ctl(t, "registry", "set", "shop", "--limit", "40s", "--every", "2s").expect(t, exitOK)
	l.ctl(t, "registry", "set", "shop", "--limit", "1ms").expect(t, exitFailure, "limit_ms")
	l.ctl(t, "registry", "reset", "shop", "a/1").expect(t, exitFailure, "nothing is set")
	l.ctl(t, "registry", "set", "shop").expect(t, exitUsage, "--limit")
	l.ctl(t, "registry", "set", "shop", "b", "--limit", "8s").expect(t, exitUsage, "--limit")
	l.ctl(t, "registry", "set", "shop", "b").expect(t, exitFailure, "sets nothing")
	var services []server.RegistryService
	got := l.ctl(t, "registry", "services", "-o", "json").expect(t, exitOK)
	if err := json.Unmarshal([]byte(got.out), &services); err != nil || len(services) != 2 || services[1].LimitMS != 40000 || services[1].EveryMS != 2000 {
		t.Error(got.out, err)
	}
	l.ctl(t, "registry", "put", "db", "--host", "10.0.0.8", "--port", "5432", "--weight=0").expect(t, exitUsage, "--weight is 0, expected more than 0 and at most 10000; for none, use schedctl registry set SERVICE ID --no-enabled")
	l.ctl(t, "registry", "set", "db", "10.0.0.7:5432", "--weight=0").expect(t, exitUsage, "--weight is 0, expected more than 0 and at most 10000; for none, use --no-enabled")
	l.ctl(t, "registry", "set", "shop", "b", "--draining", "--for=-1h").expect(t, exitUsage, "--for is -1h")
	l.ctl(t, "registry", "set", "shop", "b", "--draining", "--for=0s").expect(t, exitUsage, "--for is 0s")
	l.ctl(t, "registry", "set", "shop", "--limit=500us").expect(t, exitFailure, "limit_ms is 1, expected 0, or 10000")
	l.ctl(t, "registry", "put", "db6", "--host", "2001:db8::7", "--port", "80").expect(t, exitOK, "revision 1")
	l.ctl(t, "registry", "instances", "db6").expect(t, exitOK, " [2001:db8::7]:80 ")
	l.ctl(t, "registry", "show", "db6", "[2001:db8::7]:80").expect(t, exitOK, "[2001:db8::7]:80")
	l.ctl(t, "registry", "rm", "db6", "[2001:db8::7]:80").expect(t, exitOK, "is removed")
	l.ctl(t, "registry", "rm", "db", "10.0.0.7:5432", "--if-epoch", "gone").expect(t, exitFailure, "conflict")
	l.ctl(t, "registry", "rm", "db", "10.0.0.7:5432", "--if-epoch", "operator").expect(t, exitOK, "is removed")
	l.ctl(t, "registry", "show", "db").expect(t, exitOK, "removed")
}

// TestRegistryMigrate: the bridge runs in a replica, and without services of version 1 there is
// nothing to finish.
func TestRegistryMigrate(t *testing.T) {
	t.Parallel()
	l := start(t)
	waittest.Until(t, "the end of the search for services", func() bool { return l.ctl(t, "registry", "migrate", "--status").code == exitOK })
	l.ctl(t, "registry", "migrate", "--status").expect(t, exitOK, "SERVICE", "COPIED", "WRITTEN BACK")
	l.ctl(t, "registry", "migrate", "--finish").expect(t, exitOK, "The keys of 0 services are removed")
	l.ctl(t, "registry", "migrate").expect(t, exitUsage, "--status")
}
