package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// What is tested has the rights of a replica in Redis, and the tests those of the default user.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, registry.Access) }

var (
	root = []string{"Authorization", "Bearer root-token"}
	acme = []string{"Authorization", "Bearer acme-token"}
)

// bed is a replica's API on a registry with two instances of asr, a and b.
type bed struct {
	*apitest.Server
	store    *registry.Store
	consumer *registry.Consumer
	provider *registry.Provider
}

func newBed(t *testing.T, redis *redistest.Target) *bed {
	t.Helper()
	ctx := waittest.Context(t)
	log, prefix := zaptest.NewLogger(t), redis.Prefix(t)
	b := &bed{store: registry.NewStore(redis.RoleClient(t), prefix, redis.IsCluster(), log)}
	var err error
	if b.consumer, err = registry.NewConsumer(registry.ConsumerOptions{RedisURL: redis.AdminURL(), KeyPrefix: prefix, Logger: log}); err != nil {
		t.Fatal(err)
	}
	b.consumer.StartOn(b.store)
	if b.provider, err = registry.NewProvider(registry.Options{RedisURL: redis.AdminURL(), KeyPrefix: prefix, StopPause: -1, Logger: log}); err != nil {
		t.Fatal(err)
	}
	if err := b.provider.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := waittest.Context(t)
		for _, stop := range []func(context.Context) error{b.provider.Stop, b.consumer.Stop} {
			if err := stop(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	for i, id := range []string{"a", "b"} {
		r := registry.Registration{Service: "asr", ID: id, Host: "127.0.0.1", Port: 9001 + i, Metadata: map[string]string{"zone": "z" + id}}
		if id == "a" {
			r.Check = &registry.Check{Kind: "tcp"}
		}
		if err := b.provider.Register(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	b.Server = apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) {
		d.Routes = []api.Routes{routesOf(b.store, b.consumer, func() []cell.NodeState {
			return []cell.NodeState{
				{Node: freeslot.Node{ID: "n2", MaxConcurrency: 2, Services: []freeslot.Service{{Name: "tts"}, {Name: "asr", Version: "3"}}}, Used: 1},
				{Node: freeslot.Node{ID: "n1", MaxConcurrency: 4, Services: []freeslot.Service{{Name: "asr", Endpoint: "http://n1:9000"}}}, Status: freeslot.StatusDraining},
			}
		})}
	})
	return b
}

func onBoth(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Helper()
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		test(t, newBed(t, redis))
	})
}

// ask is an answer that must have all of want.
func (b *bed) ask(t *testing.T, method, target, content string, want ...string) apitest.Response {
	t.Helper()
	got := b.Do(t, method, target, content, root...)
	if got.Status != http.StatusOK {
		t.Fatalf("%s %s: %d %s; want got.Status == http.StatusOK", method, target, got.Status, got.Text)
	}
	for _, w := range want {
		if !strings.Contains(got.Text, w) {
			t.Errorf("%s %s: %s, expected %s", method, target, got.Text, w)
		}
	}
	return got
}

const services = "/admin/registry/services"

// TestSeen: what operators see of services and instances.
func TestSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		b.ask(t, "GET", services, "", `"services":[{"name":"asr","instances":2,"late":0,"revision":2,"limit_ms":120000,"every_ms":30000}]`)
		b.ask(t, "GET", services+"?after=asr", "", `"services":[]`)
		b.ask(t, "GET", services+"/asr", "", `"instances":2,"healthy":2,"late":0`, `"heartbeat_delay_ms":{"count":2,`)
		b.ask(t, "GET", services+"/none", "", `"revision":0,"why":"never registered"`)
		b.ask(t, "GET", services+"/asr/instances", "", `"id":"a","host":"127.0.0.1","port":9001,"protocol":"TCP","healthy":true,"weight":1,"enabled":true`, `"check":{"kind":"tcp"`)
		if got := b.ask(t, "GET", services+"/asr/instances?label=zone%3Dzb", "", `"id":"b"`); strings.Contains(got.Text, `"id":"a"`) {
			t.Errorf("%s, expected b alone", got.Text)
		}
		b.ask(t, "GET", services+"/asr/instances?metric=cpu.usage%3C0.5", "", `"instances":[]`)
		b.ask(t, "GET", services+"/asr/instances/a", "", `"metadata":{"zone":"za"}`, `"interval_ms":10000,"beat_ms":1`)
		b.ask(t, "GET", services+"/asr/instances/a/metrics", "", `{}`)
		b.ask(t, "GET", "/admin/registry/health", "", `"services":[]`, `"healthy":1`)
		b.ask(t, "GET", services+"/asr/health", "", `"healthy":2`)
		b.Do(t, "GET", services+"/asr/instances/c", "", root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		b.ask(t, "GET", "/admin/registry/node-services", "", `{"services":[{"name":"asr","source":"node","nodes":[`+
			`{"node":"n1","status":"draining","endpoint":"http://n1:9000","used":0,"slots":4,"beat_ms":0},{"node":"n2","status":"online","version":"3","used":1,"slots":2,"beat_ms":0}]},`+
			`{"name":"tts","source":"node","nodes":[{"node":"n2"`)
		targets, err := b.store.Targets(t.Context())
		if err != nil || len(targets) != 1 || targets[0].Name() != "asr:a" || targets[0].Port != 9001 || targets[0].Check.Fall != registry.DefaultFall {
			t.Fatalf("instances to check: %+v, %v; expected a", targets, err)
		}
		if err := b.store.Verdict(t.Context(), &targets[0], "refused"); err != nil {
			t.Fatal(err)
		}
		b.ask(t, "GET", "/admin/registry/health", "", `"services":[{"service":{"name":"asr",`, `"failing":1}]`, `"healthy":0`)
		b.ask(t, "GET", services+"/asr/health", "", `{"id":"a","reason":"check fails: refused"}`)
	})
}

// TestOperatorsWord: it hides the provider's, survives its restart, and can be taken back.
func TestOperatorsWord(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		b.ask(t, "PUT", services+"/asr/instances/a/override", `{"draining":true,"weight":7,"author":"ann","note":"deploy"}`, `{"revision":3}`)
		b.ask(t, "GET", services+"/asr/instances/a", "", `"healthy":false,"weight":7,"enabled":true,"draining":true`, `"author":"ops/ann","note":"deploy"`)
		b.discovers(t, "b")
		if err := b.provider.Deregister(t.Context(), "asr", "a"); err != nil {
			t.Fatal(err)
		}
		if err := b.provider.Register(t.Context(), registry.Registration{Service: "asr", ID: "a", Host: "127.0.0.1", Port: 9001}); err != nil {
			t.Fatal(err)
		}
		b.ask(t, "GET", services+"/asr/health", "", `{"id":"a","reason":"drains"}`)
		b.discovers(t, "b")
		b.Do(t, "DELETE", services+"/asr/instances/a/override?seen=0", "", root...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
		b.Do(t, "PUT", services+"/asr/instances/a/override?seen=1", `{"enabled":false}`, root...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
		b.Do(t, "PUT", services+"/asr/instances/a/override?seen=x", `{"enabled":false}`, root...).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		b.ask(t, "DELETE", services+"/asr/instances/a/override", "", `"revision":6`)
		b.discovers(t, "a b")
		b.Do(t, "PUT", services+"/asr/instances/c/override", `{"enabled":false}`, root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	})
}

// discovers waits until the healthy instances are these.
func (b *bed) discovers(t *testing.T, want string) {
	t.Helper()
	version, got := "", ""
	waittest.Until(t, "to find "+want, func() bool {
		answer := b.Do(t, "GET", fmt.Sprintf("/v1/discover/asr?version=%s&wait_ms=5000", version), "", acme...)
		if answer.Status != http.StatusOK {
			t.Fatal(answer.Text)
		}
		version = answer.Body["version"].(string)
		var ids []string
		for _, i := range answer.Body["instances"].([]any) {
			ids = append(ids, i.(map[string]any)["id"].(string))
		}
		got = strings.Join(ids, " ")
		return got == want
	}, func() any { return got })
}

// TestPersistent: operators register instances that send no heartbeats, and remove any.
func TestPersistent(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		const db = `{"host":"10.1.2.3","port":5432,"protocol":"POSTGRES"}`
		b.ask(t, "POST", services+"/db/instances", db, `{"revision":1}`)
		b.ask(t, "POST", services+"/db/instances", db, `{"revision":1}`)
		b.ask(t, "GET", services+"/db/instances/10.1.2.3:5432", "", `"protocol":"POSTGRES"`, `"persistent":true`)
		b.ask(t, "GET", "/v1/discover/db", "", `"state":"live"`, `"host":"10.1.2.3"`)
		b.ask(t, "DELETE", services+"/db/instances/10.1.2.3:5432", "", `"revision":2`)
		b.ask(t, "GET", services+"/db", "", `"why":"removed"`)
		b.Do(t, "DELETE", services+"/db/instances/10.1.2.3:5432", "", root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		b.Do(t, "POST", services+"/asr/instances", `{"id":"a","host":"10.1.2.3","port":1}`, root...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
	})
}

// TestCleanupSettings: they are those of the service, and no others are taken.
func TestCleanupSettings(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bed) {
		b.ask(t, "PUT", services+"/asr/cleanup", `{"limit_ms":40000,"every_ms":1000}`)
		b.ask(t, "GET", services+"/asr", "", `"limit_ms":40000,"every_ms":1000`)
		b.ask(t, "PUT", services+"/asr/cleanup", `{"every_ms":0}`)
		b.ask(t, "GET", services+"/asr", "", `"limit_ms":40000,"every_ms":10000`)
		b.Do(t, "PUT", services+"/none/cleanup", `{"limit_ms":10000}`, root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	})
}

// TestRefused: bad input is named, and clients do not see what operators see.
func TestRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, redistest.Shared(t))
	for _, c := range []struct{ method, target, content string }{
		{"GET", services + "/a%20b", ""},
		{"GET", services + "/asr/instances?cursor=x", ""},
		{"GET", services + "/asr/instances/heartbeats", ""},
		{"GET", services + "/asr/instances?label=x", ""},
		{"GET", services + "/asr/instances?metric=x", ""},
		{"PUT", services + "/asr/instances/a/override", `{}`},
		{"PUT", services + "/asr/instances/a/override", `{"weight":-1}`},
		{"PUT", services + "/asr/instances/a/override", `{"weight":0}`},
		{"PUT", services + "/asr/instances/a/override", `{"enabled":true,"note":"a\nb"}`},
		{"PUT", services + "/asr/instances/a/override", `{"enabled":true,"for_ms":-1}`},
		{"PUT", services + "/asr/instances/a/override", `{"color":"red"}`},
		{"PUT", services + "/asr/instances/a/override", `{"enabled":true,"for_ms":0}`},
		{"PUT", services + "/asr/cleanup", `{"limit_ms":-1}`},
		{"PUT", services + "/asr/cleanup", `{"every_ms":-1}`},
		{"PUT", services + "/asr/cleanup", `{"limit_ms":9999}`},
		{"PUT", services + "/asr/cleanup", `{"limit_ms":10000,"every_ms":1}`},
		{"PUT", services + "/asr/cleanup", `{}`},
		{"POST", services + "/asr/instances", `{"host":"0.0.0.0","port":1}`},
		{"POST", services + "/asr/instances", `{"host":"10.1.1.1","port":70000}`},
		{"POST", services + "/asr/instances", `{"host":"10.1.1.1","port":1,"weight":0}`},
		{"POST", services + "/asr/instances", `{"host":"10.1.1.1","port":1,"weight":-1}`},
		{"POST", services + "/asr/instances", `{"host":"10.1.1.1","port":1,"check":{"kind":"tcp","interval_ms":0}}`},
		{"POST", services + "/asr/instances", `{"host":"10.1.1.1","port":1,"check":{"kind":"tcp","timeout_ms":-1}}`},
		{"POST", services + "/asr/instances", `{"host":"10.1.1.1","port":1,"check":{"kind":"tcp","interval_ms":18446744073710552}}`},
		{"GET", "/v1/discover/asr?wait_ms=-1", ""},
		{"GET", "/v1/discover/a%20b", ""},
	} {
		b.Do(t, c.method, c.target, c.content, root...).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if !strings.HasPrefix(c.target, "/v1/") {
			b.Do(t, c.method, c.target, c.content, acme...).Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		}
		b.Do(t, c.method, c.target, c.content).Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
	}
	b.ask(t, "GET", services+"/asr", "", `"revision":2`) // nothing has changed
}

// TestMadeUpNames: a name that nobody registered is not followed for ever.
func TestMadeUpNames(t *testing.T) {
	t.Parallel()
	b := newBed(t, redistest.Shared(t))
	b.ask(t, "GET", "/v1/discover/made-up", "", `"state":"empty","why":"never registered"`)
	if err := b.consumer.Unsubscribe("made-up"); err == nil {
		t.Error("the replica follows a service that never was")
	}
	// One request for it does not end another one that waits for its first instance.
	begun, answer := make(chan struct{}), make(chan apitest.Response, 1)
	go func() {
		close(begun)
		answer <- b.Do(t, "GET", "/v1/discover/first?version=x&wait_ms=20000", "", acme...)
	}()
	<-begun
	known := b.ask(t, "GET", "/v1/discover/first", "", "never registered").Body["version"].(string)
	<-answer
	go func() {
		answer <- b.Do(t, "GET", "/v1/discover/first?version="+known+"&wait_ms=20000", "", acme...)
	}()
	for range 20 {
		b.ask(t, "GET", "/v1/discover/first", "")
	}
	if err := b.provider.Register(t.Context(), registry.Registration{Service: "first", ID: "a", Host: "127.0.0.1", Port: 9001}); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got.Status != http.StatusOK || !strings.Contains(got.Text, `"id":"a"`) {
		t.Errorf("%d %s, expected the first instance", got.Status, got.Text)
	}
}
