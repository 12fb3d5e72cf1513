package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

// replica is the part of a scheduler that these tests need.
type replica struct {
	t     *testing.T
	cell  *cell.Cell
	nodes []string
	last  string
}

const replicaName = "replica-1"

func newReplica(t *testing.T, redis *redistest.Target, prefix string) *replica {
	t.Helper()
	return newReplicaWith(t, redis, cell.Config{Layout: cell.Layout{Prefix: prefix}, CallTimeout: patience})
}

func newReplicaWith(t *testing.T, redis *redistest.Target, cfg cell.Config) *replica {
	t.Helper()
	c, err := cell.New(cfg, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Start(t.Context()), c.OpenReplies(t.Context(), replicaName)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return &replica{t: t, cell: c, nodes: []string{"node-1", "node-2"}}
}

// submit places a job on node-1 and returns its id. It tries again while the node is not known,
// silent or full.
func (r *replica) submit(job freeslot.Job) string {
	r.t.Helper()
	s := cell.Submission{JobID: r.cell.NewJobID(), Tenant: "default", Job: &job, Candidates: []string{"node-1"}, ReplyTo: replicaName}
	waittest.Until(r.t, "the node to take a job", func() bool {
		p, err := r.cell.Submit(r.t.Context(), s)
		if err == nil && p.Assigned {
			return true
		}
		r.match() // a job does not pass those that wait
		return false
	})
	return s.JobID
}

// wait puts so many jobs of a service into the queue, and returns their ids.
func (r *replica) wait(service string, jobs int) map[string]bool {
	r.t.Helper()
	waiting := make(map[string]bool)
	for len(waiting) < jobs {
		s := cell.Submission{JobID: r.cell.NewJobID(), Tenant: "default", Job: &freeslot.Job{Service: service}}
		if got := r.cell.EnqueueAll(r.t.Context(), []cell.Submission{s}); got[0].Err != nil {
			r.t.Fatal(got[0].Err)
		}
		waiting[s.JobID] = true
	}
	return waiting
}

// eachRunsOnce waits until all jobs have run, whose handlers send their ids to runs; before is
// called before each wait.
func (r *replica) eachRunsOnce(waiting map[string]bool, runs <-chan string, before func()) {
	r.t.Helper()
	for len(waiting) > 0 {
		before()
		id := waittest.Receive(r.t, fmt.Sprintf("%d jobs to run", len(waiting)), runs)
		if !waiting[id] {
			r.t.Fatalf("job %s ran twice", id)
		}
		delete(waiting, id)
	}
}

// match gives the nodes' free slots to waiting jobs, after those whose pause is over have joined
// them. The next call repeats what fails.
func (r *replica) match() {
	_, _ = r.cell.Due(r.t.Context(), 100)
	waiting, _ := r.cell.Waiting(r.t.Context(), 0)
	classes := make([]string, len(waiting.Classes))
	for i, c := range waiting.Classes {
		classes[i] = c.ID
	}
	if len(classes) == 0 {
		return
	}
	for _, node := range r.nodes {
		_, _ = r.cell.Take(r.t.Context(), node, classes, 1)
	}
}

// end waits for the job's result on the reply stream. Meanwhile it does the work of replicas for
// waiting jobs.
func (r *replica) end(jobID string) freeslot.JobStatus {
	r.t.Helper()
	var status freeslot.JobStatus
	waittest.Until(r.t, "the end of job "+jobID, func() bool {
		r.match()
		replies, err := r.cell.Replies(r.t.Context(), replicaName, r.last, 50*time.Millisecond, 100)
		if err != nil {
			return false
		}
		for _, reply := range replies {
			r.last = reply.ID
			if reply.Status.ID == jobID && !reply.Assigned && !reply.Requeued {
				if status, err = r.cell.Job(r.t.Context(), "", jobID); err != nil {
					r.t.Fatal(err)
				}
				return true
			}
		}
		return false
	}, func() any { return r.last }, func() any { s, err := r.cell.Job(r.t.Context(), "", jobID); return fmt.Sprint(s.State, s.Attempt, err) })
	return status
}

// logged is a logger whose messages a test can wait for.
type logged struct{ messages chan string }

func newLogged() *logged { return &logged{make(chan string, 1000)} }

func (l *logged) logger() *zap.Logger {
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(discard{}), zapcore.InfoLevel)
	return zap.New(core, zap.Hooks(func(e zapcore.Entry) error { l.messages <- e.Message; return nil }))
}

func (l *logged) wait(t *testing.T, message string) {
	t.Helper()
	for !strings.Contains(waittest.Receive(t, "the log to say "+message, l.messages), message) {
		continue
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// startRedisWorker starts a worker of node-1 and stops it at the end of the test.
func startRedisWorker(t *testing.T, redis *redistest.Target, prefix string, setup ...func(*Worker)) (*Worker, *logged) {
	t.Helper()
	return startRedisNode(t, redis, prefix, "node-1", setup...)
}

func startRedisNode(t *testing.T, redis *redistest.Target, prefix, node string, setup ...func(*Worker)) (*Worker, *logged) {
	t.Helper()
	logs := newLogged()
	cfg := Config{
		RedisURL: redis.URL(), KeyPrefix: prefix, HeartbeatInterval: MinHeartbeatInterval, Logger: logs.logger(),
		Node: freeslot.Node{ID: node, MaxConcurrency: 4}, Registerer: prometheus.NewPedanticRegistry(),
	}
	if throughGateway {
		cfg.RedisURL, cfg.Gateway, cfg.Token = "", "ws://below", testToken
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range setup {
		s(w)
	}
	if throughGateway {
		w.cfg.Gateway = serveRedisGateway(t, redis, w.cfg)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.Stop(ctx)
	})
	return w, logs
}

// faults wraps the real cell; each func can lose an answer.
type faults struct {
	store
	onComplete func() error
}

func (f *faults) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	outcome, err := f.store.Complete(ctx, comp)
	if lost := f.onComplete(); lost != nil {
		return "", lost
	}
	return outcome, err
}

func TestRedisJobEndToEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	w, _ := startRedisWorker(t, redis, prefix, handle("echo", echo), handle("fail", returns(nil, errors.New("no luck"))))
	r := newReplica(t, redis, prefix)

	small := r.end(r.submit(freeslot.Job{Service: "echo", Payload: json.RawMessage(`{"a":1}`)}))
	if small.State != freeslot.StateSucceeded || string(small.Result) != `{"a":1}` || small.Node != "node-1" {
		t.Fatalf("%+v; want small.State == freeslot.StateSucceeded, string(small.Result) == `{\"a\":1}`, small.Node == \"node-1\"", small)
	}
	payload, _ := json.Marshal(strings.Repeat("x", 100<<10)) // not carried by the stream
	if large := r.end(r.submit(freeslot.Job{Service: "echo", Payload: payload})); string(large.Result) != string(payload) {
		t.Fatalf("state %s, %d bytes", large.State, len(large.Result))
	}
	failed := r.end(r.submit(freeslot.Job{Service: "fail"}))
	if failed.State != freeslot.StateFailed || failed.Error.Code != freeslot.JobErrorHandler || failed.Error.Message != "no luck" {
		t.Fatalf(`%+v; want failed.State == freeslot.StateFailed, failed.Error.Code == freeslot.JobErrorHandler, failed.Error.Message == "no luck"`, failed)
	}
	if err := w.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	changes, err := r.cell.Changes(t.Context(), 0, 10)
	if err != nil || len(changes.Nodes) != 1 || !changes.Nodes[0].Gone {
		t.Fatalf("after stop: %+v, %v", changes.Nodes, err)
	}
}

func TestRedisCancel(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	begun := make(chan struct{}, 1)
	startRedisWorker(t, redis, prefix, handle("s", func(ctx context.Context, job *Job) (any, error) {
		begun <- struct{}{}
		return untilCancelled(ctx, job)
	}))
	r := newReplica(t, redis, prefix)
	job := r.submit(freeslot.Job{Service: "s"})
	<-begun
	if status, err := r.cell.Cancel(t.Context(), "", job); err != nil || status.State != freeslot.StateCancelling {
		t.Fatalf("%+v, %v; want no error, status.State == freeslot.StateCancelling", status, err)
	}
	if status := r.end(job); status.State != freeslot.StateCancelled {
		t.Fatalf("%+v; want status.State == freeslot.StateCancelled", status)
	}
	// The cancel may reach the agent before, with or after the job.
	for range 50 {
		job := r.submit(freeslot.Job{Service: "s"})
		if _, err := r.cell.Cancel(t.Context(), "", job); err != nil {
			t.Fatal(err)
		}
		if status := r.end(job); status.State != freeslot.StateCancelled {
			t.Fatalf("%+v; want status.State == freeslot.StateCancelled", status)
		}
		select {
		case <-begun:
		default:
		}
	}
}

func TestRedisSuperseded(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	begun := make(chan struct{}, 1)
	first, _ := startRedisWorker(t, redis, prefix, handle("s", func(ctx context.Context, job *Job) (any, error) {
		begun <- struct{}{}
		return untilCancelled(ctx, job)
	}))
	r := newReplica(t, redis, prefix)
	lost := r.submit(freeslot.Job{Service: "s"})
	<-begun
	startRedisWorker(t, redis, prefix, handle("s", echo))
	<-first.Done()
	if !errors.Is(first.Err(), ErrSuperseded) {
		t.Fatalf("err %v", first.Err())
	}
	if status := r.end(lost); status.State != freeslot.StateSucceeded || status.Attempt != 2 || status.Failures != 1 {
		t.Fatalf("%+v, expected a second attempt", status)
	}
	if status := r.end(r.submit(freeslot.Job{Service: "s"})); status.State != freeslot.StateSucceeded {
		t.Fatalf("%+v; want status.State == freeslot.StateSucceeded", status)
	}
}

func TestRedisUnknownNodeRegistersAgain(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	w, logs := startRedisWorker(t, redis, prefix, handle("s", echo), handle("wait", func(ctx context.Context, job *Job) (any, error) {
		if job.Attempt > 1 {
			return "back", nil
		}
		began <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}))
	logs.wait(t, "node.registered")
	r := newReplica(t, redis, prefix)
	lost := r.submit(freeslot.Job{Service: "wait"})
	waittest.Receive(t, "the first attempt to begin", began) // else none may have begun that could be lost
	if _, err := r.cell.Deregister(t.Context(), "node-1", w.epoch); err != nil {
		t.Fatal(err)
	}
	logs.wait(t, "node.registered")
	if cause := waittest.Receive(t, "the first attempt to be stopped", ended); !errors.Is(cause, ErrNotOwned) {
		t.Fatalf("cause %v", cause)
	}
	if status := r.end(lost); string(status.Result) != `"back"` || status.Attempt != 2 || status.Failures != 0 {
		t.Fatalf("%+v, expected a second attempt on the same node", status)
	}
	if status := r.end(r.submit(freeslot.Job{Service: "s"})); status.State != freeslot.StateSucceeded {
		t.Fatalf("%+v; want status.State == freeslot.StateSucceeded", status)
	}
}

func TestRedisLostCompletionReplyIsNotDoubled(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	var runs, completes atomic.Int32
	startRedisWorker(t, redis, prefix, handle("s", func(context.Context, *Job) (any, error) { return runs.Add(1), nil }), func(w *Worker) {
		open := w.open
		w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
			s, done, err := open(ctx)
			return &faults{s, func() error {
				if completes.Add(1)%3 != 0 { // each completion loses two answers
					return errRedisAway
				}
				return nil
			}}, done, err
		}
	})
	r := newReplica(t, redis, prefix)
	for n := 1; n <= 3; n++ {
		if status := r.end(r.submit(freeslot.Job{Service: "s", Slots: 4})); string(status.Result) != fmt.Sprint(n) {
			t.Fatalf("%+v, expected the result of run %d", status, n)
		}
	}
	if runs.Load() != 3 {
		t.Fatalf("%d runs of 3 jobs", runs.Load())
	}
}

func TestRedisCrashAndRestart(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.AppendOnly("always"))
	prefix := redis.Prefix(t)
	begun, release := make(chan struct{}, 1), make(chan struct{})
	_, logs := startRedisWorker(t, redis.Target, prefix, handle("s", func(context.Context, *Job) (any, error) {
		begun <- struct{}{}
		<-release
		return "kept", nil
	}), handle("echo", echo))
	r := newReplica(t, redis.Target, prefix)
	job := r.submit(freeslot.Job{Service: "s"})
	<-begun
	redis.Kill()
	logs.wait(t, "heartbeat.failed")
	close(release)
	redis.Restart()
	if status := r.end(job); status.State != freeslot.StateSucceeded || string(status.Result) != `"kept"` {
		t.Fatalf("%+v; want status.State == freeslot.StateSucceeded, string(status.Result) == `\"kept\"`", status)
	}
	if status := r.end(r.submit(freeslot.Job{Service: "echo"})); status.State != freeslot.StateSucceeded {
		t.Fatalf("%+v; want status.State == freeslot.StateSucceeded", status)
	}
}

func TestRedisLosesItsData(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	prefix := redis.Prefix(t)
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	_, logs := startRedisWorker(t, redis.Target, prefix, handle("wait", func(ctx context.Context, _ *Job) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}), handle("echo", echo))
	r := newReplica(t, redis.Target, prefix)
	r.submit(freeslot.Job{Service: "wait"})
	<-begun
	redis.Restart()
	logs.wait(t, "node.forgotten")
	if cause := waittest.Receive(t, "the first attempt to be stopped", ended); !errors.Is(cause, ErrNotOwned) {
		t.Fatalf("cause %v", cause)
	}
	for err := errRedisAway; err != nil; { // the replica has to connect again, too
		err = r.cell.OpenReplies(t.Context(), replicaName)
	}
	r.last = ""
	if status := r.end(r.submit(freeslot.Job{Service: "echo"})); status.State != freeslot.StateSucceeded {
		t.Fatalf("%+v; want status.State == freeslot.StateSucceeded", status)
	}
}

func TestRedisHangs(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	prefix := redis.Prefix(t)
	_, logs := startRedisWorker(t, redis.Target, prefix, handle("echo", echo))
	r := newReplica(t, redis.Target, prefix)
	redis.Pause()
	logs.wait(t, "heartbeat.failed")
	redis.Resume()
	logs.wait(t, "heartbeat.recovered")
	if status := r.end(r.submit(freeslot.Job{Service: "echo"})); status.State != freeslot.StateSucceeded {
		t.Fatalf("%+v; want status.State == freeslot.StateSucceeded", status)
	}
}

// Several submitters, a worker that loses answers, and many more jobs than slots:
// each job ends once with the result of its only execution.
func TestRedisStress(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	const submitters, jobs = 4, 100
	var runs sync.Map
	var doubled, completes atomic.Int32
	w, _ := startRedisWorker(t, redis, prefix, handle("s", func(_ context.Context, job *Job) (any, error) {
		if _, again := runs.LoadOrStore(job.ID, true); again {
			doubled.Add(1)
		}
		return job.Payload, nil
	}), func(w *Worker) {
		open := w.open
		w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
			s, done, err := open(ctx)
			return &faults{s, func() error {
				if completes.Add(1)%7 == 0 {
					return errRedisAway
				}
				return nil
			}}, done, err
		}
	})
	r := newReplica(t, redis, prefix)
	var wg sync.WaitGroup
	ids := make(chan string, submitters*jobs)
	for range submitters {
		wg.Go(func() {
			for range jobs {
				ids <- r.submit(freeslot.Job{Service: "s", Payload: json.RawMessage(`1`)})
			}
		})
	}
	wg.Wait()
	close(ids)
	if err := w.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for job := range ids {
		// A job that arrived last may have met the stop, and waits; no job can be lost.
		status, err := r.cell.Job(t.Context(), "", job)
		if err != nil || status.State != freeslot.StateSucceeded && (status.State != freeslot.StateWaiting || status.Failures != 0) {
			t.Errorf("%+v, %v; want no error, status.State == freeslot.StateSucceeded or (status.State == freeslot.StateWaiting and status.Failures == 0)", status, err)
		}
	}
	if doubled.Load() != 0 {
		t.Fatalf("%d attempts were started twice", doubled.Load())
	}
}

func TestRedisUnreachableFailsTheStart(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"redis://user:hidden@127.0.0.1:1": "redis at 127.0.0.1:1 cannot be used: dial tcp 127.0.0.1:1: connect: connection refused",
		"redis://user:hidden@[":           "redis_url is not a URL, expected redis://[user:password@]host:port[/db]",
	} {
		w, err := New(Config{RedisURL: url, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}, ExitUnreachable: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(t.Context()); err == nil || err.Error() != says {
			t.Fatalf("error %v, expected %s", err, says)
		}
		<-w.Done()
	}
}
