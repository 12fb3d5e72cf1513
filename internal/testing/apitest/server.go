// Package apitest serves package api over fakes, for tests of its own routes and of features'
// routes.
package apitest

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
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/selection"
)

// JobID is the id of every accepted job.
const JobID = "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"

// Jobs is a dispatcher that answers from its fields. nil fields have a default.
type Jobs struct {
	mu        sync.Mutex // guards Submitted, Requeues and forgotten
	Submitted []Submission
	forgotten int
	// Sinks gets the sink of each waiting submit.
	Sinks    chan dispatch.Sink
	OnSubmit func(Submission) error
	// Position is the position of every accepted job.
	Position int
	OnSpec   func(id string) (*freeslot.Job, string, error)
	// Requeues holds the jobs that were submitted again, as which.
	Requeues map[string]string
	OnJob    func(tenant, id string) (freeslot.JobStatus, error)
	OnList   func(f cell.JobFilter, cursor string, limit int) (cell.JobPage, error)
	OnDead   func(f cell.JobFilter, by []cell.DeadKey) (cell.DeadLetters, error)
}

// Submission is a job that was submitted.
type Submission struct {
	Tenant string
	Job    freeslot.Job
	Origin cell.Origin
}

// Submit implements api.Jobs.
func (f *Jobs) Submit(
	_ context.Context, reqs []dispatch.Request, sink dispatch.Sink, accepted func(int, dispatch.Accepted, error),
) {
	s := Submission{Tenant: reqs[0].Tenant, Job: *reqs[0].Job, Origin: reqs[0].Origin}
	f.mu.Lock()
	f.Submitted = append(f.Submitted, s)
	f.mu.Unlock()
	if f.OnSubmit != nil {
		if err := f.OnSubmit(s); err != nil {
			accepted(0, dispatch.Accepted{}, err)
			return
		}
	}
	accepted(0, dispatch.Accepted{JobID: JobID, Position: f.Position}, nil)
	if sink != nil {
		sink.Assigned(dispatch.Assignment{JobID: JobID, Node: "node-1", Attempt: 1})
		f.Sinks <- sink
	}
}

// Spec implements api.Specs.
func (f *Jobs) Spec(_ context.Context, id string) (*freeslot.Job, string, error) {
	return f.OnSpec(id)
}

// Requeued implements api.Specs.
func (f *Jobs) Requeued(_ context.Context, id, as string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Requeues == nil {
		f.Requeues = make(map[string]string)
	}
	f.Requeues[id] = as
	return nil
}

// DeadLetters implements api.Jobs.
func (f *Jobs) DeadLetters(_ context.Context, filter cell.JobFilter, by []cell.DeadKey) (cell.DeadLetters, error) {
	if f.OnDead != nil {
		return f.OnDead(filter, by)
	}
	return cell.DeadLetters{}, nil
}

// Forget implements api.Jobs.
func (f *Jobs) Forget(dispatch.Sink) {
	f.mu.Lock()
	f.forgotten++
	f.mu.Unlock()
}

// Forgets returns how often Forget was called.
func (f *Jobs) Forgets() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forgotten
}

// Job implements api.Jobs.
func (f *Jobs) Job(_ context.Context, tenant, id string) (freeslot.JobStatus, error) {
	if f.OnJob != nil {
		return f.OnJob(tenant, id)
	}
	return Running(), nil
}

// CancelIf implements api.Jobs.
func (f *Jobs) CancelIf(ctx context.Context, tenant, id string, _ cell.Seen) (freeslot.JobStatus, error) {
	status, err := f.Job(ctx, tenant, id)
	if err == nil {
		status.State = freeslot.StateCancelling
	}
	return status, err
}

// Jobs implements api.Jobs.
func (f *Jobs) Jobs(_ context.Context, filter cell.JobFilter, cursor string, limit int) (cell.JobPage, error) {
	if f.OnList != nil {
		return f.OnList(filter, cursor, limit)
	}
	return cell.JobPage{}, nil
}

// JobsByKey implements api.Jobs.
func (f *Jobs) JobsByKey(_ context.Context, filter cell.JobFilter, key string) (cell.JobPage, error) {
	return cell.JobPage{LookedAt: 1, Jobs: []freeslot.JobStatus{{ID: JobID, Tenant: filter.Tenant, Service: key}}}, nil
}

// Running returns the status of a running job.
func Running() freeslot.JobStatus {
	return freeslot.JobStatus{
		ID: JobID, Tenant: "default", Service: "tts", State: freeslot.StateRunning, Node: "node-1", Attempt: 1, Slots: 1,
		SubmittedAtMS: 1, AssignedAtMS: 2,
	}
}

// Succeeded returns the status of a job that has succeeded.
func Succeeded() freeslot.JobStatus {
	s := Running()
	s.State, s.Result, s.FinishedAtMS = freeslot.StateSucceeded, json.RawMessage(`{"ok":"<&>"}`), 3
	return s
}

// Nodes is a node cache that answers from its fields.
type Nodes struct {
	ByID      map[string]cell.NodeState
	Live      []*selection.Node
	Rules     selection.Config
	Skipped   selection.CellMask
	Returning bool
	Freshness cache.Health
	OnChecked func(ctx context.Context, id string) (cell.NodeState, bool, bool)
	// Looks counts the calls of Node.
	Looks atomic.Int64
}

// States implements api.Nodes.
func (f *Nodes) States() []cell.NodeState {
	var out []cell.NodeState
	for _, n := range f.ByID {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b cell.NodeState) int { return strings.Compare(a.Node.ID, b.Node.ID) })
	return out
}

// Health implements api.Nodes.
func (f *Nodes) Health() cache.Health { return f.Freshness }

// AllNodes implements api.Fleet.
func (f *Nodes) AllNodes() []*selection.Node { return slices.Clone(f.Live) }

// Node implements api.Fleet.
func (f *Nodes) Node(id string) (*selection.Node, bool) {
	f.Looks.Add(1)
	for _, n := range f.Live {
		if n.ID() == id {
			return n, true
		}
	}
	return nil, false
}

// Config implements api.Fleet.
func (f *Nodes) Config() *selection.Config { return &f.Rules }

// Now implements api.Fleet.
func (f *Nodes) Now() int64 { return 0 }

// SilenceLimit implements api.Fleet.
func (f *Nodes) SilenceLimit() time.Duration { return time.Second }

// Skip implements api.Fleet.
func (f *Nodes) Skip() selection.CellMask { return f.Skipped }

// MayReturn implements api.Fleet.
func (f *Nodes) MayReturn(*freeslot.Job) bool { return f.Returning }

// State implements api.Nodes.
func (f *Nodes) State(id string) (cell.NodeState, bool) {
	n, ok := f.ByID[id]
	return n, ok
}

// CheckedState implements api.Nodes.
func (f *Nodes) CheckedState(ctx context.Context, id string) (cell.NodeState, bool, bool) {
	return f.OnChecked(ctx, id)
}

// Server is a server over fakes.
type Server struct {
	*api.Server
	Jobs  *Jobs
	Nodes *Nodes
}

// New makes a server that accepts every caller, unless adapt changes that.
func New(t testing.TB, cfg api.Config, adapt ...func(*api.Deps)) *Server {
	t.Helper()
	s := &Server{Jobs: &Jobs{Sinks: make(chan dispatch.Sink, 16)}, Nodes: &Nodes{ByID: map[string]cell.NodeState{}}}
	reg := prometheus.NewRegistry()
	deps := api.Deps{
		Jobs: s.Jobs, Specs: s.Jobs, Nodes: s.Nodes, Auth: identity.NewAuthenticator(nil, "default", true),
		Gatherer: reg, Registerer: reg, Logger: zaptest.NewLogger(t),
	}
	for _, a := range adapt {
		a(&deps)
	}
	if cfg.Replica == "" {
		cfg.Replica, cfg.Version = "r1", "test"
	}
	s.Server = api.New(cfg, deps)
	return s
}

// WithTokens adds three callers: acme and other are clients, root is an operator.
func WithTokens(d *api.Deps) {
	d.Auth = identity.NewAuthenticator([]identity.Credential{
		{Token: "acme-token", Principal: identity.Principal{Tenant: "acme", Role: identity.Client}},
		{Token: "other-token", Principal: identity.Principal{Tenant: "other", Role: identity.Client}},
		{Token: "root-token", Principal: identity.Principal{Tenant: "ops", Role: identity.Operator}},
	}, "default", true)
}

// Response is an answer with its body decoded. A compressed one has only its text.
type Response struct {
	Status int
	Header http.Header
	Body   map[string]any
	Text   string
}

// Do sends a request, with header in pairs of name and value.
func (s *Server) Do(t testing.TB, method, target, content string, header ...string) Response {
	t.Helper()
	var reader io.Reader
	if content != "" {
		reader = strings.NewReader(content)
	}
	r := httptest.NewRequestWithContext(t.Context(), method, target, reader)
	r.Host = "127.0.0.1:7480"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	out := Response{Status: w.Code, Header: w.Result().Header, Text: w.Body.String()}
	if strings.HasPrefix(out.Header.Get("Content-Type"), "application/json") && out.Header.Get("Content-Encoding") == "" {
		if err := json.Unmarshal(bytes.TrimSpace(w.Body.Bytes()), &out.Body); err != nil {
			t.Fatalf("%s %s: %v: %s", method, target, err, w.Body)
		}
	}
	return out
}

// Refusal checks that r has only the fields of an error, with this code.
func (r Response) Refusal(t testing.TB, status int, code freeslot.Code) {
	t.Helper()
	if r.Status != status || r.Body["code"] != string(code) || r.Body["message"] == "" {
		t.Errorf("answer is %d %s, expected %d %s", r.Status, r.Text, status, code)
	}
	for field := range r.Body {
		switch field {
		case "code", "message", "field", "retry_after_ms", "breakdown", "errors", "current_version":
		default:
			t.Errorf("an error has the field %q: %s", field, r.Text)
		}
	}
}

// At walks down a decoded JSON object.
func At(v any, path ...string) any {
	for _, name := range path {
		v = v.(map[string]any)[name]
	}
	return v
}
