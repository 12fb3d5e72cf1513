package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/session"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

// fleet is a scheduler that keeps its jobs in memory: several replicas, one set of jobs. A job of
// service "echo" succeeds at once with its payload. "hold" runs until the test or a cancel ends it.
// "wait" waits at position 3 until the test places it. "busy" is refused.
type fleet struct {
	t  *testing.T
	mu sync.Mutex
	// jobs by id; results go to the sink that attached last.
	jobs map[string]*fleetJob
	keys map[string]string // idempotency key -> job
	// submits and attaches count what reached any replica.
	submits, attaches int
	// parents are the trace contexts of the jobs.
	parents []string
	// submitting, when set, is called before each submit takes effect.
	submitting func()
	// attachErr, when set, is the error of the next attach.
	attachErr error
}

type fleetJob struct {
	status freeslot.JobStatus
	sink   dispatch.Sink
}

func newFleet(t *testing.T) *fleet {
	return &fleet{t: t, jobs: map[string]*fleetJob{}}
}

func (f *fleet) Submit(_ context.Context, reqs []dispatch.Request, sink dispatch.Sink, accepted func(int, dispatch.Accepted, error)) {
	f.mu.Lock()
	f.submits++
	submitting := f.submitting
	f.mu.Unlock()
	if submitting != nil {
		submitting()
	}
	for i, r := range reqs {
		if r.Job.Service == "busy" {
			accepted(i, dispatch.Accepted{}, &freeslot.Error{Code: freeslot.CodeOverloaded, Message: "busy", RetryAfter: time.Second})
			continue
		}
		f.mu.Lock()
		if known := f.keys[r.Job.IdempotencyKey]; known != "" {
			f.jobs[known].sink = sink
			f.mu.Unlock()
			accepted(i, dispatch.Accepted{JobID: known}, nil)
			continue
		}
		f.parents = append(f.parents, r.Job.TraceParent)
		id := fmt.Sprintf("0-%d", len(f.jobs)+1)
		f.jobs[id] = &fleetJob{sink: sink, status: freeslot.JobStatus{
			ID: id, Tenant: r.Tenant, Service: r.Job.Service, State: freeslot.StateRunning, Node: "node-1", Attempt: 1, Slots: 1,
		}}
		if key := r.Job.IdempotencyKey; key != "" {
			if f.keys == nil {
				f.keys = make(map[string]string)
			}
			f.keys[key] = id
		}
		if r.Job.Service == "wait" {
			status := &f.jobs[id].status
			status.State, status.Node, status.Attempt, status.Position = freeslot.StateWaiting, "", 0, 3
			f.mu.Unlock()
			accepted(i, dispatch.Accepted{JobID: id, Position: 3}, nil)
			continue
		}
		f.mu.Unlock()
		accepted(i, dispatch.Accepted{JobID: id}, nil)
		sink.Assigned(dispatch.Assignment{JobID: id, Node: "node-1", Attempt: 1, AssignedAtMS: 1})
		if r.Job.Service == "echo" {
			f.finish(id, freeslot.StateSucceeded, r.Job.Payload)
		}
	}
}

func (f *fleet) finish(id string, state freeslot.State, result json.RawMessage) {
	f.mu.Lock()
	job := f.jobs[id]
	job.status.State, job.status.Result = state, result
	status, sink := job.status, job.sink
	f.mu.Unlock()
	if sink != nil {
		sink.Result(status)
	}
}

// place begins the next attempt of a job.
func (f *fleet) place(id, node string) {
	f.mu.Lock()
	status := &f.jobs[id].status
	status.State, status.Node, status.Position = freeslot.StateRunning, node, 0
	status.Attempt++
	a, sink := dispatch.Assignment{JobID: id, Node: node, Attempt: status.Attempt, AssignedAtMS: 1}, f.jobs[id].sink
	f.mu.Unlock()
	if sink != nil {
		sink.Assigned(a)
	}
}

// requeue has a job wait again after an attempt failed.
func (f *fleet) requeue(id string, state freeslot.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := &f.jobs[id].status
	status.State, status.Position = state, 1
	status.Failures++
}

func (f *fleet) Cancel(_ context.Context, _, id string) (freeslot.JobStatus, error) {
	f.mu.Lock()
	job := f.jobs[id]
	f.mu.Unlock()
	if job == nil {
		return freeslot.JobStatus{}, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "job_id", Message: "no such job"}
	}
	f.finish(id, freeslot.StateCancelled, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	return job.status, nil
}

func (f *fleet) Attach(_ context.Context, _, id string, sink dispatch.Sink) (freeslot.JobStatus, error) {
	f.mu.Lock()
	f.attaches++
	job, err := f.jobs[id], f.attachErr
	if job == nil {
		err = &freeslot.Error{Code: freeslot.CodeNotFound, Field: "job_id", Message: "no such job"}
	}
	if err != nil {
		f.attachErr = nil
		f.mu.Unlock()
		return freeslot.JobStatus{}, err
	}
	before := job.sink
	job.sink = sink
	status := job.status
	f.mu.Unlock()
	if before != nil && before != sink && !status.State.Terminal() {
		before.Detached(id)
	}
	return status, nil
}

func (f *fleet) Forget(sink dispatch.Sink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, job := range f.jobs {
		if job.sink == sink {
			job.sink = nil
		}
	}
}

func (f *fleet) Changed() <-chan struct{} { return nil }

func (f *fleet) Holds(*identity.Principal) bool { return true }

func (f *fleet) Authenticate(r *http.Request) (identity.Principal, error) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		return identity.Principal{}, &freeslot.Error{Code: freeslot.CodeUnauthenticated, Message: "no token"}
	}
	return identity.Principal{Tenant: "acme", Role: identity.Client}, nil
}

// replica is one server of the fleet.
type replica struct {
	*session.Handler
	t      *testing.T
	server *httptest.Server
	url    string
	// hangUp is set only in a scripted replica.
	hangUp func()

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (f *fleet) replica(cfg session.Config) *replica {
	f.t.Helper()
	return f.replicaAt("127.0.0.1:0", cfg)
}

func (f *fleet) replicaAt(address string, cfg session.Config) *replica {
	f.t.Helper()
	cfg.Replica = "replica"
	h, err := session.New(cfg, f, f, zap.NewNop(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	r := &replica{Handler: h, t: f.t, conns: map[net.Conn]struct{}{}}
	r.server = httptest.NewUnstartedServer(h)
	_ = r.server.Listener.Close()
	r.server.Listener = &tracking{Listener: listener, replica: r}
	r.server.Start()
	r.url = "ws://" + listener.Addr().String()
	f.t.Cleanup(r.stop)
	return r
}

func (r *replica) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		r.t.Error(err)
	}
	r.server.Close()
}

// kill ends the replica as a crash would: no close frames, no goodbyes.
func (r *replica) kill() {
	_ = r.server.Listener.Close()
	r.cut()
}

// cut breaks all connections.
func (r *replica) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		_ = conn.Close()
		delete(r.conns, conn)
	}
}

// tracking remembers the connections that it accepted.
type tracking struct {
	net.Listener
	replica *replica
}

func (l *tracking) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.replica.mu.Lock()
		l.replica.conns[conn] = struct{}{}
		l.replica.mu.Unlock()
	}
	return conn, err
}

func dial(t *testing.T, opts client.Options, replicas ...*replica) *client.Client {
	t.Helper()
	var urls []string
	for _, r := range replicas {
		urls = append(urls, r.url)
	}
	opts.Token = "secret"
	if opts.MinBackoff == 0 {
		opts.MinBackoff = time.Millisecond
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	opts.HTTPClient = &http.Client{Transport: transport}
	c, err := client.Dial(deadline(t), strings.Join(urls, ","), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// deadline is for the calls of a test.
func deadline(t *testing.T) context.Context {
	t.Helper()
	return waittest.Context(t)
}

func submit(t *testing.T, c *client.Client, service string) *client.Handle {
	t.Helper()
	h, err := c.Submit(deadline(t), freeslot.Job{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func wait(t *testing.T, h *client.Handle) freeslot.JobStatus {
	t.Helper()
	s, err := h.Wait(deadline(t))
	if err != nil {
		t.Fatalf("wait for job %s: %v", h.ID(), err)
	}
	return s
}
