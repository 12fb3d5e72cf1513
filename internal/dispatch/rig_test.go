package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

const tenant = "acme"

// deadline is for the calls of a test. What is cleaned up before it ends may use it as well.
func deadline(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

func receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	return waittest.Receive(t, what, ch)
}

// start runs a service until the end of the test.
func start(t testing.TB, s interface {
	Start(context.Context) error
	Stop(context.Context) error
},
) {
	t.Helper()
	if err := s.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
}

func stop(t testing.TB, s interface{ Stop(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// rig is a Redis with keys of its own: the fleet and the replicas of one test.
type rig struct {
	t       testing.TB
	servers []*redistest.Target // cell i is on server i modulo their number
	layouts []cell.Layout
	log     *zap.Logger
	// set and clients, by cell and server, reach Redis directly, whatever is between it and the
	// replicas.
	set     *cell.Set
	clients []rueidis.Client

	// These are of the first cell.
	layout cell.Layout
	cell   *cell.Cell
	client rueidis.Client
}

// newRig is a rig of one cell.
func newRig(t testing.TB, redis *redistest.Target) *rig {
	t.Helper()
	return newCells(t, 1, redis)
}

func newCells(t testing.TB, cells int, servers ...*redistest.Target) *rig {
	t.Helper()
	r := &rig{t: t, servers: servers, log: zaptest.NewLogger(t, zaptest.Level(logLevel(t)))}
	r.layouts = cell.Layouts(servers[0].Prefix(t), cells, servers[0].IsCluster())
	for _, s := range servers {
		r.clients = append(r.clients, s.Client(t))
	}
	// What the test itself does takes as long as the machine needs.
	r.set = r.newSet(r.clients, func(c *cell.Config) { c.CallTimeout = patience })
	r.layout, r.cell, r.client = r.layouts[0], r.set.At(0), r.clients[0]
	for i, l := range r.layouts {
		servers[i%len(servers)].Age(t, l.Version())
	}
	return r
}

// logLevel keeps benchmarks from measuring logs.
func logLevel(t testing.TB) zapcore.Level {
	if _, ok := t.(*testing.B); ok {
		return zapcore.FatalLevel
	}
	return zapcore.DebugLevel
}

func (r *rig) newSet(clients []rueidis.Client, change ...func(*cell.Config)) *cell.Set {
	r.t.Helper()
	cells := make([]*cell.Cell, len(r.layouts))
	for i, layout := range r.layouts {
		// Nodes live as long as their test, unless it sets another limit.
		cfg := cell.Config{Layout: layout, Index: i, HeartbeatLimit: time.Hour}
		for _, f := range change {
			f(&cfg)
		}
		var err error
		if cells[i], err = cell.New(cfg, clients[i%len(clients)], r.log, nil); err != nil {
			r.t.Fatal(err)
		}
	}
	set := cell.NewSet(cells...)
	start(r.t, set)
	return set
}

// of is the direct way to a node's cell and its keys.
func (r *rig) of(node string) (*cell.Cell, cell.Layout, rueidis.Client) {
	c := r.set.OfNode(node)
	return c, r.layouts[c.Index()], r.clients[c.Index()%len(r.clients)]
}

// open makes the two clients of a replica to one server, by url if it is not empty.
func (r *rig) open(server *redistest.Target, url string) (commands, subscriber rueidis.Client) {
	r.t.Helper()
	if server.IsCluster() {
		return server.RoleClient(r.t), server.RoleClient(r.t)
	}
	if url == "" {
		url = server.URL()
	}
	open := func(role func(redisclient.Config) (rueidis.Client, error)) rueidis.Client {
		c, err := role(redisclient.Config{URL: url})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(c.Close)
		return c
	}
	return open(redisclient.Commands), open(redisclient.Subscriber)
}

// replica is one scheduler without its interfaces.
type replica struct {
	*Dispatcher
	rig   *rig
	cache *cache.Cache
	set   *cell.Set
	reg   *prometheus.Registry
}

type replicaConfig struct {
	// url leads to the first server. Empty is the direct way.
	url string
	// blind is for a cache that learns nothing after its start.
	blind    bool
	dispatch Config
	cache    cache.Config
	cell     func(*cell.Config)
	// nodes, if not nil, replaces the cache for the dispatcher.
	nodes func(*cache.Cache) Nodes
	log   *zap.Logger
}

// replica starts one more replica.
func (r *rig) replica(name string, change ...func(*replicaConfig)) *replica {
	r.t.Helper()
	rep := r.unstarted(name, change...)
	start(r.t, rep.cache)
	start(r.t, rep.Dispatcher)
	return rep
}

func (r *rig) unstarted(name string, change ...func(*replicaConfig)) *replica {
	r.t.Helper()
	cfg := replicaConfig{dispatch: Config{Replica: name, SubmitTimeout: patience / 2}, cell: func(*cell.Config) {}, log: r.log}
	for _, f := range change {
		f(&cfg)
	}
	commands, subscribers := make([]rueidis.Client, len(r.servers)), make([]rueidis.Client, len(r.servers))
	for i, s := range r.servers {
		commands[i], subscribers[i] = r.open(s, cfg.url)
		cfg.url = ""
	}
	rep := &replica{rig: r, reg: prometheus.NewRegistry()}
	// Calls are answered even on a busy machine. Tests about calls that are not set other limits.
	rep.set = r.newSet(commands, func(c *cell.Config) { c.CallTimeout = patience / 2 }, cfg.cell)
	feeds := make([]cache.Feed, len(r.layouts))
	for i, l := range r.layouts {
		feeds[i].Source = rep.set.At(i)
		if !cfg.blind {
			feeds[i].Events = events.NewSubscriber(subscribers[i%len(subscribers)], l.NodeEvents(), l.Sharded, cfg.log.Named(name))
		}
	}
	rep.cache = cache.New(cfg.cache, feeds, cfg.log.Named(name), rep.reg)
	nodes := Nodes(rep.cache)
	if cfg.nodes != nil {
		nodes = cfg.nodes(rep.cache)
	}
	var err error
	if rep.Dispatcher, err = New(cfg.dispatch, rep.set, nodes, cfg.log.Named(name), rep.reg); err != nil {
		r.t.Fatal(err)
	}
	return rep
}

// pending is the sum of the reservations that the replica's cache holds.
func (rep *replica) pending() int {
	sum := 0
	for _, n := range rep.cache.AllNodes() {
		_, pending := n.Load()
		sum += pending
	}
	return sum
}

// settled checks what must hold whenever no submit is under way.
func (rep *replica) settled() {
	rep.rig.t.Helper()
	if n := rep.pending(); n != 0 {
		rep.rig.t.Errorf("%d slots are still pending in the cache of %s", n, rep.Replica())
	}
}

// place submits one job and returns its id, or the error.
func (rep *replica) place(job *freeslot.Job, sink Sink) (string, error) {
	rep.rig.t.Helper()
	accepted, err := rep.submit(job, sink)
	return accepted.JobID, err
}

// mustWait submits one job, which must get this position in its queue; 0 is none.
func (rep *replica) mustWait(job *freeslot.Job, position int, sink Sink) string {
	rep.rig.t.Helper()
	accepted, err := rep.submit(job, sink)
	if err != nil || accepted.Position != position {
		rep.rig.t.Fatalf("%+v, %v; expected position %d", accepted, err, position)
	}
	return accepted.JobID
}

func (rep *replica) submit(job *freeslot.Job, sink Sink) (accepted Accepted, err error) {
	rep.rig.t.Helper()
	calls := 0
	rep.Submit(deadline(rep.rig.t), []Request{{Tenant: tenant, Job: job}}, sink, func(i int, a Accepted, e error) {
		calls++
		accepted, err = a, e
		if i != 0 || (a.JobID == "") == (err == nil) {
			rep.rig.t.Errorf("accepted(%d, %+v, %v)", i, a, e)
		}
	})
	if calls != 1 {
		rep.rig.t.Errorf("accepted was called %d times", calls)
	}
	rep.settled()
	return accepted, err
}

func (rep *replica) mustPlace(job *freeslot.Job, sink Sink) string {
	rep.rig.t.Helper()
	id, err := rep.place(job, sink)
	if err != nil {
		rep.rig.t.Fatalf("submit: %v", err)
	}
	return id
}

func job() *freeslot.Job {
	return &freeslot.Job{Service: "echo", Payload: json.RawMessage(`{"n":1}`)}
}

func node(id string, slots int) freeslot.Node {
	return freeslot.Node{ID: id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: "echo"}}}
}

// agent is a node that the test controls.
type agent struct {
	rig   *rig
	cell  *cell.Cell
	node  freeslot.Node
	epoch cell.Epoch
	after string // last dispatch entry read
}

func (r *rig) agent(n freeslot.Node) *agent {
	r.t.Helper()
	a := &agent{rig: r, cell: r.set.OfNode(n.ID), node: n, epoch: cell.NewEpoch()}
	a.register()
	return a
}

func (a *agent) register() {
	a.rig.t.Helper()
	if _, err := a.cell.Register(deadline(a.rig.t), a.node, a.epoch); err != nil {
		a.rig.t.Fatal(err)
	}
}

func (a *agent) heartbeat(status freeslot.Status) {
	a.rig.t.Helper()
	if _, err := a.cell.Heartbeat(deadline(a.rig.t), cell.Heartbeat{Node: a.node.ID, Epoch: a.epoch, Status: status}); err != nil {
		a.rig.t.Fatal(err)
	}
}

// next waits for the node's next dispatch entry.
func (a *agent) next() cell.Dispatch {
	a.rig.t.Helper()
	ds, err := a.cell.Dispatches(deadline(a.rig.t), a.node.ID, a.after, patience/2, 1)
	if err != nil || len(ds) != 1 {
		a.rig.t.Fatalf("dispatches of %s: %v, %v", a.node.ID, ds, err)
	}
	a.after = ds[0].ID
	return ds[0]
}

// complete ends a job of this node.
func (a *agent) complete(id, result string) {
	a.rig.t.Helper()
	a.end(cell.Completion{
		Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateSucceeded, Result: json.RawMessage(result),
	})
}

func (a *agent) end(comp cell.Completion) {
	a.rig.t.Helper()
	comp.Node, comp.Epoch = a.node.ID, a.epoch
	// Not deadline, which ends with the test: serve goes on a little longer.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := a.cell.Complete(ctx, comp)
	if err != nil || out == cell.CompletedStale {
		a.rig.t.Errorf("complete %s: %s, %v", comp.Attempt.Job, out, err)
	}
}

// serve runs every job that comes until the end of the test, each by itself. handle returns the
// result.
func (a *agent) serve(handle func(d cell.Dispatch) string) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			ds, err := a.cell.Dispatches(ctx, a.node.ID, a.after, time.Second, 256)
			if errors.Is(err, context.DeadlineExceeded) {
				continue // on a machine that is very busy
			}
			if err != nil {
				if ctx.Err() == nil {
					a.rig.t.Errorf("dispatches of %s: %v", a.node.ID, err)
				}
				return
			}
			for _, d := range ds {
				a.after = d.ID
				if !d.Cancel {
					running.Go(func() { a.complete(d.Attempt.Job, handle(d)) })
				}
			}
		}
	})
	a.rig.t.Cleanup(func() { cancel(); running.Wait() })
}

// owned is what a node owns in Redis: the jobs, and the slots in use.
func (r *rig) owned(node string) (jobs []string, used int) {
	r.t.Helper()
	_, layout, client := r.of(node)
	slots, err := client.Do(deadline(r.t), client.B().Hgetall().Key(layout.Slots(node)).Build()).AsStrMap()
	if err != nil {
		r.t.Fatal(err)
	}
	for job, value := range slots {
		if job == "sum" {
			_, err = fmt.Sscan(value, &used)
		} else {
			jobs = append(jobs, job)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	slices.Sort(jobs)
	return jobs, used
}

// recorder is a sink that keeps its calls, and fails the test if their order is wrong.
type recorder struct {
	t  testing.TB
	mu sync.Mutex
	// jobs holds the calls for each job, in order.
	jobs map[string][]any
	news chan struct{} // has room for one
	// hold, if not nil, is called by every method of the sink.
	hold func()
}

func newRecorder(t testing.TB) *recorder {
	return &recorder{t: t, jobs: make(map[string][]any), news: make(chan struct{}, 1)}
}

type gone struct{}

func (r *recorder) add(id string, what any) {
	if r.hold != nil {
		r.hold()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs[id] = append(r.jobs[id], what)
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *recorder) Assigned(a Assignment)                      { r.add(a.JobID, a) }
func (r *recorder) Result(s freeslot.JobStatus)                { r.add(s.ID, s) }
func (r *recorder) Detached(jobID string)                      { r.add(jobID, gone{}) }
func (r *recorder) Progress(jobID string, p freeslot.Progress) { r.add(jobID, p) }

func (r *recorder) of(id string) []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs[id])
}

// result waits for the job's terminal state.
func (r *recorder) result(id string) freeslot.JobStatus {
	r.t.Helper()
	var found freeslot.JobStatus
	waittest.Until(r.t, "result of "+id, func() bool {
		for _, what := range r.of(id) {
			if s, ok := what.(freeslot.JobStatus); ok {
				found = s
				return true
			}
		}
		return false
	})
	if !found.State.Terminal() {
		r.t.Errorf("result of %s in state %s", id, found.State)
	}
	return found
}

// begun waits for the attempt of this number.
func (r *recorder) begun(id string, attempt int) (found Assignment) {
	r.t.Helper()
	waittest.Until(r.t, fmt.Sprintf("attempt %d of %s", attempt, id), func() bool {
		for _, what := range r.of(id) {
			if a, ok := what.(Assignment); ok && a.Attempt == attempt {
				found = a
				return true
			}
		}
		return false
	})
	return found
}

// kinds is the job's story in one word each: assigned, result, detached.
func (r *recorder) kinds(id string) string {
	var out []string
	for _, what := range r.of(id) {
		switch what.(type) {
		case Assignment:
			out = append(out, "assigned")
		case freeslot.JobStatus:
			out = append(out, "result")
		case gone:
			out = append(out, "detached")
		}
	}
	return strings.Join(out, " ")
}

func (r *recorder) want(id, kinds string) {
	r.t.Helper()
	if got := r.kinds(id); got != kinds {
		r.t.Errorf("job %s: got %q, want %q", id, got, kinds)
	}
}

func wantCode(t testing.TB, err error, code freeslot.Code) {
	t.Helper()
	_ = asError(t, err, code)
}

func asError(t testing.TB, err error, code freeslot.Code) *freeslot.Error {
	t.Helper()
	var e *freeslot.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want the code %s", err, code)
	}
	return e
}
