package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	jobID   = "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"
	localIP = "127.0.0.1:7480"
)

// fakeJobs answers from its fields; nil ones have a default.
type fakeJobs struct {
	mu        sync.Mutex
	submitted []submission
	forgotten int
	// sinks gets the sink of each waiting submit.
	sinks  chan dispatch.Sink
	submit func(submission) error
	// position is that of every accepted job.
	position int
	spec     func(id string) (*freeslot.Job, string, error)
	job      func(tenant, id string) (freeslot.JobStatus, error)
	list     func(f cell.JobFilter, cursor string, limit int) (cell.JobPage, error)
}

type submission struct {
	tenant string
	job    freeslot.Job
}

func (f *fakeJobs) Submit(_ context.Context, reqs []dispatch.Request, sink dispatch.Sink, accepted func(int, dispatch.Accepted, error)) {
	s := submission{tenant: reqs[0].Tenant, job: *reqs[0].Job}
	f.mu.Lock()
	f.submitted = append(f.submitted, s)
	f.mu.Unlock()
	if f.submit != nil {
		if err := f.submit(s); err != nil {
			accepted(0, dispatch.Accepted{}, err)
			return
		}
	}
	accepted(0, dispatch.Accepted{JobID: jobID, Position: f.position}, nil)
	if sink != nil {
		sink.Assigned(dispatch.Assignment{JobID: jobID, Node: "node-1", Attempt: 1})
		f.sinks <- sink
	}
}

func (f *fakeJobs) Spec(_ context.Context, id string) (*freeslot.Job, string, error) {
	return f.spec(id)
}

func (f *fakeJobs) Forget(dispatch.Sink) {
	f.mu.Lock()
	f.forgotten++
	f.mu.Unlock()
}

func (f *fakeJobs) forgets() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forgotten
}

func (f *fakeJobs) Job(_ context.Context, tenant, id string) (freeslot.JobStatus, error) {
	if f.job != nil {
		return f.job(tenant, id)
	}
	return running(), nil
}

func (f *fakeJobs) Cancel(ctx context.Context, tenant, id string) (freeslot.JobStatus, error) {
	status, err := f.Job(ctx, tenant, id)
	if err == nil {
		status.State = freeslot.StateCancelling
	}
	return status, err
}

func (f *fakeJobs) Jobs(_ context.Context, filter cell.JobFilter, cursor string, limit int) (cell.JobPage, error) {
	if f.list != nil {
		return f.list(filter, cursor, limit)
	}
	return cell.JobPage{}, nil
}

func running() freeslot.JobStatus {
	return freeslot.JobStatus{ID: jobID, Tenant: "default", Service: "tts", State: freeslot.StateRunning, Node: "node-1", Attempt: 1, Slots: 1, SubmittedAtMS: 1, AssignedAtMS: 2}
}

func succeeded() freeslot.JobStatus {
	s := running()
	s.State, s.Result, s.FinishedAtMS = freeslot.StateSucceeded, json.RawMessage(`{"ok":"<&>"}`), 3
	return s
}

type fakeNodes struct {
	nodes   map[string]cell.NodeState
	live    []*selection.Node
	config  selection.Config
	skip    selection.CellMask
	health  cache.Health
	checked func(ctx context.Context, id string) (cell.NodeState, bool, bool)
}

func (f *fakeNodes) States() []cell.NodeState {
	var out []cell.NodeState
	for _, n := range f.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int { return strings.Compare(a.Node.ID, b.Node.ID) })
	return out
}

func (f *fakeNodes) Health() cache.Health        { return f.health }
func (f *fakeNodes) AllNodes() []*selection.Node { return slices.Clone(f.live) }
func (f *fakeNodes) Node(id string) (*selection.Node, bool) {
	for _, n := range f.live {
		if n.ID() == id {
			return n, true
		}
	}
	return nil, false
}

func (f *fakeNodes) Config() *selection.Config   { return &f.config }
func (f *fakeNodes) Now() int64                  { return 0 }
func (f *fakeNodes) SilenceLimit() time.Duration { return time.Second }
func (f *fakeNodes) Skip() selection.CellMask    { return f.skip }

func (f *fakeNodes) State(id string) (cell.NodeState, bool) {
	n, ok := f.nodes[id]
	return n, ok
}

func (f *fakeNodes) CheckedState(ctx context.Context, id string) (cell.NodeState, bool, bool) {
	return f.checked(ctx, id)
}

type fixture struct {
	server *api.Server
	jobs   *fakeJobs
	nodes  *fakeNodes
	config *fakeConfig
}

func setup(t *testing.T, cfg api.Config, adapt ...func(*api.Deps)) *fixture {
	t.Helper()
	f := &fixture{jobs: &fakeJobs{sinks: make(chan dispatch.Sink, 16)}, nodes: &fakeNodes{nodes: map[string]cell.NodeState{}}, config: newFakeConfig()}
	reg := prometheus.NewRegistry()
	deps := api.Deps{
		Jobs: f.jobs, Specs: f.jobs, Nodes: f.nodes, Config: f.config, Pools: f.config, Auth: api.NewAuthenticator(nil, "default"),
		Gatherer: reg, Registerer: reg, Logger: zaptest.NewLogger(t),
	}
	for _, a := range adapt {
		a(&deps)
	}
	if cfg.Replica == "" {
		cfg.Replica, cfg.Version = "r1", "test"
	}
	f.server = api.New(cfg, deps)
	return f
}

// withTokens has three callers: acme and other are clients, root is an operator.
func withTokens(d *api.Deps) {
	d.Auth = api.NewAuthenticator([]api.Credential{
		{Token: "acme-token", Tenant: "acme"}, {Token: "other-token", Tenant: "other"}, {Token: "root-token", Tenant: "ops", Operator: true},
	}, "default")
}

// response is an answer with its body decoded.
type response struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func (f *fixture) do(t *testing.T, method, target, content string, header ...string) response {
	t.Helper()
	return do(t, f.server.Handler(), method, target, content, header...)
}

func do(t *testing.T, handler http.Handler, method, target, content string, header ...string) response {
	t.Helper()
	var reader io.Reader
	if content != "" {
		reader = strings.NewReader(content)
	}
	r := httptest.NewRequestWithContext(t.Context(), method, target, reader)
	r.Host = localIP
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	out := response{status: w.Code, header: w.Result().Header, text: w.Body.String()}
	if strings.HasPrefix(out.header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(bytes.TrimSpace(w.Body.Bytes()), &out.body); err != nil {
			t.Fatalf("%s %s: %v: %s", method, target, err, w.Body)
		}
	}
	return out
}

// refusal checks that r has nothing but the fields of an error, with this code.
func (r response) refusal(t *testing.T, status int, code freeslot.Code) {
	t.Helper()
	if r.status != status || r.body["code"] != string(code) || r.body["message"] == "" {
		t.Errorf("answer is %d %s, expected %d %s", r.status, r.text, status, code)
	}
	for field := range r.body {
		switch field {
		case "code", "message", "field", "retry_after_ms", "breakdown", "errors", "current_version":
		default:
			t.Errorf("an error has the field %q: %s", field, r.text)
		}
	}
}

// soon ends a test that waits for what never happens.
func soon[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("waited 10s for %s", what)
		panic("unreachable")
	}
}
