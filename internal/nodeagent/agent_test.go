package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

// fleet is a Redis, the part of a scheduler that these tests need, and one agent.
type fleet struct {
	t     *testing.T
	cell  *cell.Cell
	agent *Agent
	last  string
	// metrics are the agent's.
	metrics *prometheus.Registry
	// cfg is the configuration at the agent's start.
	cfg Config
	// level is the last one that a reload has set.
	level string
}

func startFleet(t *testing.T, services ...Service) *fleet {
	t.Helper()
	return startFleetOn(t, redistest.Shared(t), 1, services...)
}

func startFleetOn(t *testing.T, redis *redistest.Target, cells int, services ...Service) *fleet {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Node = Node{ID: "node-1", MaxConcurrency: 2, Languages: Languages{TTS: []string{"de"}}}
	cfg.Services = services
	cfg.Redis = Redis{URL: redis.URL(), Cells: cells, KeyPrefix: redis.Prefix(t)}
	cfg.MetricsListen = "127.0.0.1:0"
	cfg.Resolve(nil, nil)
	return startConfig(t, redis, cfg, zap.NewNop())
}

func startConfig(t *testing.T, redis *redistest.Target, cfg Config, log *zap.Logger) *fleet {
	t.Helper()
	cells := cfg.Redis.Cells
	i := cell.NodeCell("node-1", cells)
	layout := cell.Layouts(cfg.Redis.KeyPrefix, cells, redis.IsCluster())[i]
	c, err := cell.New(cell.Config{Layout: layout, Index: i, Cells: cells, CallTimeout: patience, HeartbeatLimit: time.Hour}, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Start(t.Context()), c.OpenReplies(t.Context(), "replica-1")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })

	reg := prometheus.NewPedanticRegistry()
	a, err := New(cfg, log, reg, noop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		<-a.Done()
	})
	return &fleet{t: t, cell: c, agent: a, metrics: reg, cfg: cfg}
}

func (f *fleet) submit(job freeslot.Job) string {
	f.t.Helper()
	s := cell.Submission{JobID: f.cell.NewJobID(), Tenant: "acme", Job: &job, Candidates: []string{"node-1"}, ReplyTo: "replica-1"}
	if p, err := f.cell.Submit(f.t.Context(), s); err != nil || !p.Assigned {
		f.t.Fatalf("%+v, %v; want no error, p.Assigned", p, err)
	}
	return s.JobID
}

func (f *fleet) end(jobID string) freeslot.JobStatus {
	f.t.Helper()
	var status freeslot.JobStatus
	waittest.Until(f.t, "the end of job "+jobID, func() bool {
		replies, err := f.cell.Replies(f.t.Context(), "replica-1", f.last, time.Second, 10)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range replies {
			if f.last = r.ID; r.Status.ID == jobID {
				status = r.Status
				return true
			}
		}
		return false
	}, func() any { return f.last })
	return status
}

// TestAgentInItsCell: the agent looks for its jobs in the cell where the replicas put them.
func TestAgentInItsCell(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		f := startFleetOn(t, redis, 4, Service{Name: "cat", Command: &Command{Argv: []string{"cat"}}})
		if s := f.end(f.submit(freeslot.Job{Service: "cat", Payload: json.RawMessage(`{"a":1}`)})); string(s.Result) != `{"a":1}` {
			t.Errorf("%+v; want string(s.Result) == `{\"a\":1}`", s)
		}
	})
}

func TestAgentRunsJobs(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	f := startFleet(
		t,
		Service{Name: "echo", Version: "1.0", HTTP: &HTTP{URL: server.URL}},
		Service{Name: "speak", Command: &Command{Argv: []string{"sh", "-c", `printf %s "$FREESLOT_TARGET_LANGUAGE:$FREESLOT_PAYLOAD_TEXT"`}, Output: OutputBase64}},
		Service{Name: "fail", Command: &Command{Argv: []string{"sh", "-c", "echo no voice >&2; exit 2"}}},
		Service{Name: "wait", Command: &Command{Argv: []string{"sleep", "1000"}}},
	)
	if s := f.end(f.submit(freeslot.Job{Service: "echo", Payload: json.RawMessage(`{"a":1}`)})); string(s.Result) != `{"a":1}` {
		t.Errorf("%+v; want string(s.Result) == `{\"a\":1}`", s)
	}
	speak := freeslot.Job{Service: "speak", Payload: json.RawMessage(`{"text":"ja"}`), Requirement: freeslot.Requirement{TargetLanguage: "de"}}
	if s := f.end(f.submit(speak)); string(s.Result) != `"ZGU6amE="` { // de:ja
		t.Errorf("%+v; want string(s.Result) == `\"ZGU6amE=\"`", s)
	}
	if s := f.end(f.submit(freeslot.Job{Service: "fail"})); s.State != freeslot.StateFailed || s.Error.Code != "exit_2" || s.Error.Message != "the command exited with 2: no voice" {
		t.Errorf(`%+v; want s.State == freeslot.StateFailed, s.Error.Code == "exit_2", s.Error.Message == "the command exited with 2: no voice"`, s)
	}
	job := f.submit(freeslot.Job{Service: "wait"})
	if _, err := f.cell.Cancel(t.Context(), "", job); err != nil {
		t.Fatal(err)
	}
	if s := f.end(job); s.State != freeslot.StateCancelled {
		t.Errorf("%+v; want s.State == freeslot.StateCancelled", s)
	}
	changes, err := f.cell.Changes(t.Context(), 0, 10)
	if err != nil || len(changes.Nodes) != 1 || len(changes.Nodes[0].Node.Services) != 4 || changes.Nodes[0].Node.Services[0].Version != "1.0" {
		t.Errorf(`%+v, %v; want no error, len(changes.Nodes) == 1, len(changes.Nodes[0].Node.Services) == 4, changes.Nodes[0].Node.Services[0].Version == "1.0"`, changes.Nodes, err)
	}
}

// TestAgentGivesJobsBack: failures of the executors reach the schedulers.
func TestAgentGivesJobsBack(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server sees the abort only then
		close(begun)
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	f := startFleet(
		t,
		Service{Name: "busy", Command: &Command{Argv: []string{"sh", "-c", "exit 75"}}},
		Service{Name: "gone", HTTP: &HTTP{URL: "http://127.0.0.1:1"}},
		Service{Name: "wait", HTTP: &HTTP{URL: server.URL}},
	)
	for service, code := range map[string]string{"busy": "exit_75", "gone": CodeUnreachable} {
		if s := f.end(f.submit(freeslot.Job{Service: service, MaxAttempts: 1})); s.State != freeslot.StateDead || s.Error == nil || s.Error.Code != code {
			t.Errorf("%+v, expected dead of %s", s, code)
		}
	}
	job := f.submit(freeslot.Job{Service: "wait"})
	<-begun
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.agent.Stop(ended); err != nil {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(`
# HELP freeslot_worker_jobs_total Attempts that ended, by service and outcome.
# TYPE freeslot_worker_jobs_total counter
freeslot_worker_jobs_total{node="node-1",outcome="interrupted",service="wait"} 1
freeslot_worker_jobs_total{node="node-1",outcome="retry",service="busy"} 1
freeslot_worker_jobs_total{node="node-1",outcome="retry",service="gone"} 1
`), "freeslot_worker_jobs_total"); err != nil {
		t.Error(err)
	}
	s, err := f.cell.Job(t.Context(), "", job)
	if err != nil || s.State != freeslot.StateWaiting || s.Failures != 0 {
		t.Errorf("%+v, %v, expected the job to wait for another node", s, err)
	}
}

func TestAgentMonitor(t *testing.T) {
	t.Parallel()
	f := startFleet(t, Service{Name: "echo", Command: &Command{Argv: []string{"cat"}}})
	f.end(f.submit(freeslot.Job{Service: "echo"}))
	get := func(path string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.agent.metricsServer.Addr()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.Status + "\n" + string(body)
	}
	if got := get("/healthz"); got != "200 OK\nok\n" {
		t.Error(got)
	}
	want := `freeslot_worker_jobs_total{node="node-1",outcome="succeeded",service="echo"} 1`
	got := ""
	waittest.Until(t, want, func() bool { // counted once acknowledged
		got = get("/metrics")
		return strings.Contains(got, want)
	})
	if !strings.Contains(got, `freeslot_redis_call_seconds_count{call="complete",node="node-1"}`) {
		t.Error(got)
	}
	golden.Metrics(t, "metrics.txt", f.metrics)
	if got := get("/"); !strings.HasPrefix(got, "404") {
		t.Error(got)
	}
}

func TestAgentStartFailures(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Node.ID = "node-1"
	cfg.Services = []Service{{Name: "a", Command: &Command{Argv: []string{"no-such-program"}}}}
	cfg.Resolve(nil, nil)
	if _, err := New(cfg, zap.NewNop(), prometheus.NewRegistry(), noop.NewTracerProvider()); err == nil || !strings.HasPrefix(err.Error(), `services[0].command.argv begins with "no-such-program"`) {
		t.Errorf("error %v", err)
	}
	cfg.Services[0].Command.Argv[0] = "cat"
	cfg.Redis.URL, cfg.MetricsListen, cfg.ExitUnreachable = "redis://127.0.0.1:1", "127.0.0.1:0", true
	a, err := New(cfg, zap.NewNop(), prometheus.NewRegistry(), noop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "redis at 127.0.0.1:1 cannot be used") {
		t.Errorf("error %v", err)
	}
	<-a.Done()
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
