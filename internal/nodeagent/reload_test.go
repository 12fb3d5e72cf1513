package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/reference"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// reload applies the configuration with this change.
func (f *fleet) reload(changes ...func(*Config)) error {
	f.t.Helper()
	return f.agent.Reload(f.t.Context(), func() (Config, error) {
		cfg := f.cfg
		cfg.Services = slices.Clone(cfg.Services)
		for i := range cfg.Services {
			cfg.Services[i].detach()
		}
		for _, change := range changes {
			change(&cfg)
		}
		var problems config.Problems
		cfg.Resolve(func(string) bool { return false }, &problems)
		if cfg.Validate(&problems); len(problems) > 0 {
			return cfg, problems
		}
		f.cfg = cfg
		return cfg, nil
	}, func(level string) { f.level = level })
}

// detach copies what the service points to: Resolve writes to it, and checks and executors of the
// configuration in force read theirs. A configuration that is read from a file shares nothing.
func (s *Service) detach() {
	if s.Check != nil {
		s.Check = copied(s.Check)
		s.Check.HTTP = copied(s.Check.HTTP)
	}
	s.HTTP, s.Command = copied(s.HTTP), copied(s.Command)
}

// copied is nil for nil.
func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

// profile is the node in Redis.
func (f *fleet) profile() freeslot.Node {
	f.t.Helper()
	changes, err := f.cell.Changes(f.t.Context(), 0, 10)
	if err != nil || len(changes.Nodes) != 1 {
		f.t.Fatalf("%+v, %v; want no error, len(changes.Nodes) == 1", changes.Nodes, err)
	}
	return changes.Nodes[0].Node
}

// offered waits until Redis has exactly these services of the node.
func (f *fleet) offered(want ...string) {
	f.t.Helper()
	var got []string
	waittest.Until(f.t, fmt.Sprintf("the node to offer %v", want), func() bool {
		got = nil
		for _, s := range f.profile().Services {
			got = append(got, s.Name)
		}
		return slices.Equal(got, want)
	}, func() any { return got })
}

// handedBack waits until the job waits for another node.
func (f *fleet) handedBack(id string) {
	f.t.Helper()
	var s freeslot.JobStatus
	waittest.Until(f.t, "the job to wait", func() bool {
		var err error
		if s, err = f.cell.Job(f.t.Context(), "", id); err != nil {
			f.t.Fatal(err)
		}
		return s.State == freeslot.StateWaiting
	}, func() any { return s })
	if s.Failures != 0 {
		f.t.Errorf("%+v, expected no failure to be counted", s)
	}
}

func (f *fleet) reloads(results string) {
	f.t.Helper()
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(results), "freeslot_worker_config_reloads_total", "freeslot_worker_config_last_reload_successful"); err != nil {
		f.t.Error(err)
	}
}

func reloadMetrics(applied, unchanged, refused, successful int) string {
	return fmt.Sprintf(`
# HELP freeslot_worker_config_last_reload_successful 0 when the configuration was refused the last time that it was read.
# TYPE freeslot_worker_config_last_reload_successful gauge
freeslot_worker_config_last_reload_successful{node="node-1"} %d
# HELP freeslot_worker_config_reloads_total Times that the configuration was read again, by result.
# TYPE freeslot_worker_config_reloads_total counter
freeslot_worker_config_reloads_total{node="node-1",result="applied"} %d
freeslot_worker_config_reloads_total{node="node-1",result="refused"} %d
freeslot_worker_config_reloads_total{node="node-1",result="unchanged"} %d
`, successful, applied, refused, unchanged)
}

// TestReload: Redis has the new profile when Reload returns, and the new services run jobs.
func TestReload(t *testing.T) {
	t.Parallel()
	f := startFleet(t, Service{Name: "echo", Command: &Command{Argv: []string{"cat"}}}, Service{Name: "old", Command: &Command{Argv: []string{"cat"}}})
	err := f.reload(func(c *Config) {
		c.Node.MaxConcurrency, c.Node.Labels, c.Node.Pools = 5, map[string]string{"zone": "b"}, []string{"edge"}
		c.Node.Features, c.Node.Languages = map[string]bool{"x": true}, Languages{ASR: []string{"fr"}}
		c.Services[0].Version, c.Services[0].Endpoint = "2.0", "http://10.0.0.7:8000"
		c.Services[1] = Service{Name: "new", Command: &Command{Argv: []string{"echo", "1"}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := freeslot.Node{
		ID: "node-1", MaxConcurrency: 5, Labels: map[string]string{"zone": "b"}, Pools: []string{"edge"}, Features: map[string]bool{"x": true},
		Languages: freeslot.Languages{ASR: []string{"fr"}},
		Services:  []freeslot.Service{{Name: "echo", Version: "2.0", Endpoint: "http://10.0.0.7:8000"}, {Name: "new"}},
	}
	if diff := cmp.Diff(want, f.profile()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if s := f.end(f.submit(freeslot.Job{Service: "new"})); strings.TrimSpace(string(s.Result)) != "1" {
		t.Errorf(`%+v; want strings.TrimSpace(string(s.Result)) == "1"`, s)
	}
	if err := f.reload(); err != nil {
		t.Error(err)
	}
	f.reloads(reloadMetrics(1, 1, 0, 1))
}

// TestReloadRefused: each problem is a line with its key, the whole old configuration stays in
// force, and the next valid one is applied.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	core, log := observer.New(zapcore.InfoLevel)
	redis := redistest.Shared(t)
	cfg := DefaultConfig()
	cfg.Node = Node{ID: "node-1", MaxConcurrency: 2}
	cfg.Services = []Service{{Name: "echo", Command: &Command{Argv: []string{"cat"}, KillGrace: time.Second}}}
	cfg.Redis = Redis{URL: redis.URL(), Cells: 1, KeyPrefix: redis.Prefix(t)}
	cfg.Resolve(func(string) bool { return false }, nil)
	f := startConfig(t, redis, cfg, zap.New(core))
	before := f.profile()
	for name, test := range map[string]struct {
		change func(*Config)
		want   []string // key and reason of each line
	}{
		"not valid": {
			func(c *Config) {
				c.Node.MaxConcurrency, c.Node.Labels = 0, map[string]string{"zone": "b"}
				c.Services[0].Check = &healthcheck.Config{}
			},
			[]string{
				"node.max_concurrency: node.max_concurrency is 0, expected 1 to 65536",
				"services[0].check: services[0].check does not say what to check, expected http, tcp, grpc or websocket",
			},
		},
		"needs a restart": {
			func(c *Config) {
				c.Node.ID, c.Redis.URL, c.Redis.KeyPrefix, c.HeartbeatInterval = "node-2", "redis://user:hidden@127.0.0.1:1", "other", time.Minute
				c.StopTimeout, c.MaxResultBytes, c.MetricsListen, c.Log.Format, c.Tracing.SampleRatio = time.Hour, 1, "127.0.0.1:0", "console", 1
				c.Node.MaxConcurrency = 7
			},
			[]string{
				"node.id: node.id has changed, which needs a restart of the agent",
				"redis.url: redis.url has changed, which needs a restart of the agent",
				"redis.key_prefix: redis.key_prefix has changed, which needs a restart of the agent",
				"heartbeat_interval: heartbeat_interval has changed, which needs a restart of the agent",
				"stop_timeout: stop_timeout has changed, which needs a restart of the agent",
				"max_result_bytes: max_result_bytes has changed, which needs a restart of the agent",
				"metrics_listen: metrics_listen has changed, which needs a restart of the agent",
				"log.format: log.format has changed, which needs a restart of the agent",
				"tracing.sample_ratio: tracing.sample_ratio has changed, which needs a restart of the agent",
			},
		},
		"longer grace": {
			func(c *Config) {
				c.Services = []Service{c.Services[0], {Name: "slow", Command: &Command{Argv: []string{"cat"}, KillGrace: 30 * time.Second}}}
			},
			[]string{
				"services[1].command.kill_grace: services[1].command.kill_grace is 30s, which is longer than the agent waits when it stops: " +
					"that was set at its start, and needs a restart of the agent",
			},
		},
		"program gone": {
			func(c *Config) { c.Services[0].Command = &Command{Argv: []string{"no-such-program"}} },
			[]string{`services[0].command.argv: services[0].command.argv begins with "no-such-program", which cannot be run: executable file not found in $PATH`},
		},
	} {
		log.TakeAll()
		good := f.cfg
		err := f.reload(test.change)
		f.cfg = good
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		var got []string
		for _, e := range log.FilterMessage("config.refused").All() {
			if e.Level != zapcore.ErrorLevel {
				t.Errorf("%s: %v; want e.Level == zapcore.ErrorLevel", name, e)
			}
			got = append(got, fmt.Sprint(e.ContextMap()["key"], ": ", e.ContextMap()["reason"]))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if strings.Contains(fmt.Sprint(log.All(), err), "hidden") {
			t.Errorf("%s: a line gives a secret away", name)
		}
	}
	if diff := cmp.Diff(before, f.profile()); diff != "" {
		t.Errorf("a refused configuration changed the profile: %s", diff)
	}
	if s := f.end(f.submit(freeslot.Job{Service: "echo", Payload: json.RawMessage("7")})); string(s.Result) != "7" {
		t.Errorf(`%+v; want string(s.Result) == "7"`, s)
	}
	f.reloads(reloadMetrics(0, 0, 4, 0))
	log.TakeAll()
	if err := f.reload(func(c *Config) { c.Node.Labels, c.Log.Level = map[string]string{"zone": "b"}, "debug" }); err != nil {
		t.Error(err)
	}
	if lines := log.FilterMessage("config.reloaded").All(); len(lines) != 1 || fmt.Sprint(lines[0].ContextMap()["changed"]) != "[node.labels log.level]" {
		t.Errorf(`%+v; want len(lines) == 1, fmt.Sprint(lines[0].ContextMap()["changed"]) == "[node.labels log.level]"`, lines)
	}
	if f.level != "debug" {
		t.Errorf("the level is %q", f.level)
	}
	f.reloads(reloadMetrics(1, 0, 4, 1))
	if err := f.agent.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := f.reload(); !errors.Is(err, ErrEnded) {
		t.Errorf("%v, expected ErrEnded", err)
	}
}

// TestChangesKnowsEveryKey: a key that is not reloadable needs a restart.
func TestChangesKnowsEveryKey(t *testing.T) {
	t.Parallel()
	a, b := DefaultConfig(), DefaultConfig()
	b.Node.Languages.TTS, b.Node.Labels, b.Services = []string{"de"}, map[string]string{"a": "b"}, []Service{{}}
	b.Redis.TLS.CAFile, b.Log.Level = "x", "debug"
	a.Node.Pools, b.Node.Pools = nil, []string{} // no change
	want := []string{"node.languages.tts", "node.labels", "services", "redis.tls.ca_file", "log.level"}
	if got := changes(&a, &b); !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
	known := make(map[string]bool)
	for _, k := range reference.Keys(a) {
		known[k.Path] = true
	}
	for _, key := range reloadable {
		if !known[key] {
			t.Errorf("%s is no key", key)
		}
	}
}

// gatedServer answers with its name when the test allows it, and reports its connections.
type gatedServer struct {
	*httptest.Server
	begun, gate chan struct{}
	idle        sync.WaitGroup // ends when every connection has been closed
}

func newGatedServer(t *testing.T, name string) *gatedServer {
	t.Helper()
	s := &gatedServer{begun: make(chan struct{}, 10), gate: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.begun <- struct{}{}
		select {
		case <-s.gate:
			_, _ = io.WriteString(w, name)
		case <-r.Context().Done():
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.idle.Add(1)
		case http.StateClosed:
			s.idle.Done()
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// TestReloadReplacesExecutors: a running job ends with the service that it began with, whose
// connections are closed then. The next job goes to the new service. An unchanged executor keeps
// its connections.
func TestReloadReplacesExecutors(t *testing.T) {
	t.Parallel()
	first, second := newGatedServer(t, "first"), newGatedServer(t, "second")
	close(second.gate)
	f := startFleet(t, Service{Name: "a", HTTP: &HTTP{URL: first.URL}}, Service{Name: "b", HTTP: &HTTP{URL: second.URL}})
	kept := f.agent.services["b"]
	running := f.submit(freeslot.Job{Service: "a"})
	<-first.begun
	if err := f.reload(func(c *Config) { c.Services[0].HTTP = &HTTP{URL: second.URL} }); err != nil {
		t.Fatal(err)
	}
	if s := f.end(f.submit(freeslot.Job{Service: "a"})); string(s.Result) != `"second"` {
		t.Errorf("%+v; want string(s.Result) == `\"second\"`", s)
	}
	close(first.gate)
	if s := f.end(running); string(s.Result) != `"first"` || s.Attempt != 1 {
		t.Errorf("%+v; want string(s.Result) == `\"first\"`, s.Attempt == 1", s)
	}
	closed := make(chan struct{})
	go func() { defer close(closed); first.idle.Wait() }()
	waittest.Receive(t, "the executor that was replaced to close its connections", closed)
	if f.agent.services["b"] != kept {
		t.Error("an executor that has not changed was replaced")
	}
	if err := f.reload(func(c *Config) { c.Services[1].Version = "2" }); err != nil || f.agent.services["b"] != kept {
		t.Errorf("a new version replaced the executor (%v)", err)
	}
}

// switchable is a service with a health page; both fail while it is down.
type switchable struct {
	*httptest.Server
	mu   sync.Mutex
	down bool
	jobs int
}

func newSwitchable(t *testing.T, down bool) *switchable {
	t.Helper()
	s := &switchable{down: down}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodPost {
			s.jobs++
		}
	}))
	t.Cleanup(s.Server.Close)
	return s
}

func (s *switchable) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *switchable) service(name string) Service {
	return Service{Name: name, HTTP: &HTTP{URL: s.URL}, Check: &healthcheck.Config{HTTP: &healthcheck.HTTP{URL: s.URL}, Interval: 100 * time.Millisecond, Rise: 2, Fall: 2}}
}

// TestCheckedService: a service is offered while its check succeeds. A job that was placed before
// Redis knew of the failure is handed back, uncounted, and does not reach the service. (Each job
// has a class of its own: new jobs do not overtake waiting ones of a class.)
func TestCheckedService(t *testing.T) {
	t.Parallel()
	s := newSwitchable(t, true)
	f := startFleet(t, s.service("a"))
	f.offered()
	f.handedBack(f.submit(freeslot.Job{Service: "a", Requirement: freeslot.Requirement{Pool: "p1"}}))
	s.set(false)
	f.offered("a")
	if st := f.end(f.submit(freeslot.Job{Service: "a", Requirement: freeslot.Requirement{Pool: "p2"}})); st.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want st.State == freeslot.StateSucceeded", st)
	}
	s.set(true)
	f.offered()
	f.handedBack(f.submit(freeslot.Job{Service: "a", Requirement: freeslot.Requirement{Pool: "p3"}}))
	s.set(false)
	f.offered("a")
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(`
# HELP freeslot_worker_service_healthy 1 while the service's check lets the node offer it, by service that is checked.
# TYPE freeslot_worker_service_healthy gauge
freeslot_worker_service_healthy{node="node-1",service="a"} 1
`), "freeslot_worker_service_healthy"); err != nil {
		t.Error(err)
	}
}

// TestReloadChecks: a new service waits for its first success. One that is offered stays so until
// its new check fails, and without a check it is offered at once.
func TestReloadChecks(t *testing.T) {
	t.Parallel()
	up, down := newSwitchable(t, false), newSwitchable(t, true)
	f := startFleet(t, Service{Name: "a", HTTP: &HTTP{URL: up.URL}})
	patient := down.service("a").Check
	patient.Fall = 100
	if err := f.reload(func(c *Config) {
		c.Services = []Service{c.Services[0], down.service("b")}
		c.Services[0].Check = patient
	}); err != nil {
		t.Fatal(err)
	}
	f.offered("a") // at once: b never was
	down.set(false)
	f.offered("a", "b")
	down.set(true)
	f.offered("a")
	if err := f.reload(func(c *Config) { c.Services[1].Check = nil }); err != nil {
		t.Fatal(err)
	}
	f.offered("a", "b")
	if err := f.reload(func(c *Config) { c.Services = c.Services[:1] }); err != nil {
		t.Fatal(err)
	}
	f.offered("a")
}
