package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/redis/acl"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// announceUser makes a user with the roles agent and registry, as docs/registry.md has it, and
// returns its URL.
func announceUser(t *testing.T, redis *redistest.Target, prefix, namespace string) string {
	t.Helper()
	own, err := acl.Of(script.RoleAgent, "node-1", []script.Layout{{Prefix: prefix}}, cell.Access)
	if err != nil {
		t.Fatal(err)
	}
	more, err := acl.Of(script.RoleRegistry, script.AnyNode, []script.Layout{{Prefix: registry.Prefix(prefix, namespace)}}, registry.Access)
	if err != nil {
		t.Fatal(err)
	}
	admin, name := redis.Client(t), "agent-"+prefix
	for _, u := range []acl.User{{Name: name, Rights: own, Password: "x"}, {Name: name, Rights: more, Add: true}} {
		if err := admin.Do(t.Context(), admin.B().AclSetuser().Username(u.Name).Rule(u.Rules()...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	return "redis://" + name + ":x@" + redis.Addrs()[0]
}

// follow returns a function that waits until a service of the registry is as wanted.
func follow(t *testing.T, redis *redistest.Target, prefix, namespace string) func(service string, is func(*registry.List) bool) *registry.List {
	t.Helper()
	c, err := registry.NewConsumer(registry.ConsumerOptions{RedisURL: redis.AdminURL(), KeyPrefix: prefix, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return func(service string, is func(*registry.List) bool) *registry.List {
		t.Helper()
		lists := make(chan *registry.List, 1000)
		if _, err := c.Subscribe(service, func(l *registry.List) { lists <- l }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Unsubscribe(service) }()
		var last *registry.List
		for last == nil || !is(last) {
			last = waittest.Receive(t, "another list of "+service, lists, func() any { return last })
		}
		return last
	}
}

func one(is func(*registry.Instance) bool) func(*registry.List) bool {
	return func(l *registry.List) bool { return len(l.Instances) == 1 && is(l.Instances[0]) }
}

func gone(l *registry.List) bool {
	return l.State == registry.StateEmpty && l.Why == registry.WhyDeregistered
}

// TestAnnounce: programs find a service that the agent announces, by a user with both roles, as
// long as it is well and the agent runs.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	var sick atomic.Bool
	begun, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			close(begun)
			<-release
		case sick.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)

	cfg := DefaultConfig()
	cfg.Node = Node{ID: "node-1", MaxConcurrency: 2, Labels: map[string]string{"zone": "b"}}
	cfg.Redis = Redis{URL: announceUser(t, redis, prefix, "eu"), Cells: 1, KeyPrefix: prefix}
	cfg.Registry.Namespace = "eu"
	cfg.Services = []Service{
		{Name: "asr", Version: "2.1", Endpoint: "https://10.0.0.7/run", Announce: true, HTTP: &HTTP{URL: server.URL}},
		{
			Name: "tts", Endpoint: "[fd00::1]:9000", Announce: true, Command: &Command{Argv: []string{"cat"}},
			Check: &healthcheck.Config{HTTP: &healthcheck.HTTP{URL: server.URL}, Interval: 100 * time.Millisecond, Rise: 1, Fall: 1},
		},
		{Name: "quiet", Endpoint: "10.0.0.7:9001", Command: &Command{Argv: []string{"cat"}}},
	}
	cfg.Resolve(func(string) bool { return false }, nil)
	f := startConfig(t, redis, cfg, zap.NewNop())
	until := follow(t, redis, prefix, "eu")

	in := until("asr", one((*registry.Instance).Healthy)).Instances[0]
	labels := map[string]string{"zone": "b", "node": "node-1", "version": "2.1", "url": "https://10.0.0.7/run"}
	if in.ID != "node-1" || in.Host != "10.0.0.7" || in.Port != 443 || in.Protocol != "HTTPS" || !maps.Equal(in.Metadata, labels) {
		t.Errorf(`%+v; want in.ID == "node-1", in.Host == "10.0.0.7", in.Port == 443, in.Protocol == "HTTPS", maps.Equal(in.Metadata, labels)`, in)
	}
	in = until("tts", one((*registry.Instance).Healthy)).Instances[0]
	if in.Host != "fd00::1" || in.Port != 9000 || in.Protocol != registry.DefaultProtocol {
		t.Errorf(`%+v; want in.Host == "fd00::1", in.Port == 9000, in.Protocol == registry.DefaultProtocol`, in)
	}
	until("quiet", func(l *registry.List) bool { return l.Why == registry.WhyNeverRegistered })

	sick.Store(true)
	until("tts", one(func(in *registry.Instance) bool { return in.Unhealthy }))
	sick.Store(false)
	until("tts", one((*registry.Instance).Healthy))

	if err := f.reload(func(c *Config) {
		c.Services[0].Endpoint, c.Services[1].Announce, c.Services[2].Announce = "10.0.0.8:1", false, true
	}); err != nil {
		t.Fatal(err)
	}
	until("asr", one(func(in *registry.Instance) bool { return in.Host == "10.0.0.8" }))
	until("tts", gone)
	until("quiet", one((*registry.Instance).Healthy))

	f.submit(freeslot.Job{Service: "asr"})
	<-begun
	stopped := make(chan error)
	go func() { stopped <- f.agent.Stop(context.Background()) }()
	until("asr", one(func(in *registry.Instance) bool { return in.Draining }))
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	until("asr", gone)
	until("quiet", gone)
}

// TestAnnounceNothing: without a service to announce there is no further connection to Redis.
func TestAnnounceNothing(t *testing.T) {
	t.Parallel()
	f := startFleet(t, Service{Name: "a", Endpoint: "10.0.0.7:1", Command: &Command{Argv: []string{"cat"}}})
	if f.agent.announcer.begun || f.agent.announcer.provider.Running() {
		t.Error("the registry is in use")
	}
}

func TestAnnounceRefuses(t *testing.T) {
	t.Parallel()
	const no = "services[0].endpoint cannot be announced, expected a URL with a port, or host:port: "
	for _, test := range []struct{ service, node, namespace, want string }{
		{"", "n1", "", "services[0].endpoint is missing, expected where all clients reach the service, because announce is set"},
		{"endpoint: 'grpc://a'", "n1", "", no + "port is 0, expected 1 to 65535"},
		{"endpoint: 'a:x'", "n1", "", no + "port is 0, expected 1 to 65535"},
		{"endpoint: 'a+b://a:1'", "n1", "", no + "protocol has '+' at position 1"},
		{"endpoint: 'a b:1'", "n1", "", "services[0].endpoint is not an endpoint, expected"},
		{"endpoint: 'a:1'", "heartbeats", "", "services[0].announce is not possible: id is heartbeats"},
		{"endpoint: 'a:1'", "n1", "a b", "registry.namespace has ' ' at position 1"},
		{"endpoint: 'http://a/b'", "n1", "", ""},
		{"endpoint: '[fd00::1]:1'", "n1", "", ""},
	} {
		yaml := "services: [{name: a, announce: true, command: {argv: [cat]}, " + test.service + "}]\nregistry: {namespace: '" + test.namespace + "'}"
		_, err := load(t, yaml, "FREESLOT_NODE__ID="+test.node)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf(`%+v: %v; want test.want != "" or no error, test.want == "" or (an error and strings.HasPrefix(err.Error(), test.want) and not strings.Contains(err.Error(), "\n"))`, test, err)
		}
	}
}

// An error of the registry says that the role registry is lacking; the log must not add the agent's.
func TestAnnounceDenied(t *testing.T) {
	t.Parallel()
	denied := errors.New("NOPERM this user has no permissions")
	r := &Redis{URL: "redis://agent-n1:x@a"}
	if got := r.Denied(denied, "n1"); !strings.Contains(got, "--role agent") {
		t.Error(got)
	}
	if got := r.Denied(fmt.Errorf("register: %w", &registry.DeniedError{Err: denied, Advice: "x"}), "n1"); got != "" {
		t.Error(got)
	}
}
