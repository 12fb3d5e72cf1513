package session

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// hooked is a dispatcher with hooks before and after each Attach.
type hooked struct {
	*dispatch.Dispatcher
	before, behind func(ctx context.Context, tenant, jobID string)
}

func (h *hooked) Attach(ctx context.Context, tenant, jobID string, sink dispatch.Sink) (freeslot.JobStatus, error) {
	if h.before != nil {
		h.before(ctx, tenant, jobID)
	}
	s, err := h.Dispatcher.Attach(ctx, tenant, jobID, sink)
	if h.behind != nil {
		h.behind(ctx, tenant, jobID)
	}
	return s, err
}

// gated is a system whose jobs end when release is closed. others are replicas besides the first.
func gated(t *testing.T, release <-chan struct{}) (first, second *dispatch.Dispatcher) {
	t.Helper()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	first = realDispatcher(t, redis, prefix, "replica-1", func() {
		w, err := worker.New(worker.Config{RedisURL: redis.URL(), KeyPrefix: prefix, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4}})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("gate", func(context.Context, *worker.Job) (any, error) { <-release; return 7, nil })
		start(t, w)
	})
	return first, realDispatcher(t, redis, prefix, "replica-2", func() {})
}

const (
	gateAssigned = `{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":"…"}`
	gateResult   = `{"type":"result","job":{"job_id":"…job","tenant":"…","service":"gate","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":1,"result":7,"submitted_at_ms":"…","assigned_at_ms":"…","finished_at_ms":"…"}}`
)

// A submit whose idempotency key belongs to a job to which the session attaches just now.
func TestSubmitBesideAttach(t *testing.T) {
	t.Parallel()
	release, goOn, entered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	first, _ := gated(t, release)
	h := &hooked{Dispatcher: first}
	h.behind = func(context.Context, string, string) { once.Do(func() { close(entered); <-goOn }) }
	p := serve(t, Config{}, h).connect("")
	p.send(`{"type":"submit","id":"r1","job":{"service":"gate","idempotency_key":"k"}}`)
	p.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	p.expect(gateAssigned)
	p.send(`{"type":"attach","id":"a","job_id":"…job"}`)
	<-entered
	p.send(`{"type":"submit","id":"r2","job":{"service":"gate","idempotency_key":"k"}}`)
	p.expect(`{"type":"accepted","id":"r2","job_id":"…job"}`)
	close(goOn)
	p.expect(`{"type":"status","id":"a","job":"…"}`)
	close(release)
	p.expect(gateResult)
}

// TestDrainGivesUpAttaches: a replica drains while a session's attach is under way. That attach
// fails: the client goes to another replica and attaches there, and must not lose the job to the
// session that it left.
func TestDrainGivesUpAttaches(t *testing.T) {
	t.Parallel()
	release, entered, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first, second := gated(t, release)
	h := &hooked{Dispatcher: first, before: func(context.Context, string, string) { close(entered); <-goOn }}
	stopping := serve(t, Config{DrainGrace: 20 * time.Millisecond}, h)
	before, now := stopping.connect(""), serve(t, Config{}, second).connect("")
	now.send(`{"type":"submit","id":"r1","job":{"service":"gate"}}`)
	now.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	now.expect(gateAssigned)
	before.send(`{"type":"attach","id":"a","job_id":"` + now.vars["job"].(string) + `"}`)
	waitFor(t, entered, "the attach")
	drained := make(chan error, 1)
	go func() { drained <- stopping.Drain(t.Context()) }()
	before.expect(`{"type":"goaway","reason":"the replica is stopping"}`)
	close(goOn) // as if Redis answers again
	before.expect(`{"type":"error","id":"a","job_id":"…","code":"unavailable","message":"the replica is stopping: attach on another replica","retry_after_ms":1000}`)
	before.expectClose(websocket.StatusGoingAway)
	if err := waitFor(t, drained, "Drain"); err != nil {
		t.Error(err)
	}
	close(release)
	now.expect(gateResult)
}

// lateSubmit delays the first Submit: its replica stood still, or was cut off from Redis.
type lateSubmit struct {
	*dispatch.Dispatcher
	once                sync.Once
	entered, goOn, done chan struct{}
	life                context.Context // of the submitter; set before entered is closed
}

func (l *lateSubmit) Submit(ctx context.Context, reqs []dispatch.Request, sink dispatch.Sink, accepted func(int, dispatch.Accepted, error)) {
	first := false
	l.once.Do(func() { first = true })
	if first {
		if leaver, ok := sink.(dispatch.Leaver); ok {
			l.life = leaver.Life()
		}
		close(l.entered)
		<-l.goOn
		defer close(l.done)
	}
	l.Dispatcher.Submit(ctx, reqs, sink, accepted)
}

// A submit under a key is late. Its client has gone elsewhere and submitted once more under the key
// there, as the error asked. It must not lose the job to the session that it left.
func TestLateSubmitByKey(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"session gone, another replica", "session gone, same replica", "drain, another replica"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			first, second := gated(t, release)
			h := &lateSubmit{Dispatcher: first, entered: make(chan struct{}), goOn: make(chan struct{}), done: make(chan struct{})}
			old := serve(t, Config{DrainGrace: 20 * time.Millisecond}, h)
			before := old.connect("")
			at := serve(t, Config{}, second)
			if how == "session gone, same replica" {
				at = old
			}
			now := at.connect("")
			before.send(`{"type":"submit","id":"r1","job":{"service":"gate","idempotency_key":"k"}}`)
			waitFor(t, h.entered, "the submit")
			drained := make(chan error, 1)
			if how == "drain, another replica" {
				go func() { drained <- old.Drain(t.Context()) }()
				before.expect(`{"type":"goaway","reason":"the replica is stopping"}`)
			} else {
				_ = before.conn.CloseNow()
				drained <- nil
			}
			waitFor(t, h.life.Done(), "the end of the session's attaches") // a server notices it when it reads
			now.send(`{"type":"submit","id":"r1","job":{"service":"gate","idempotency_key":"k"}}`)
			now.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
			now.expect(gateAssigned)
			close(h.goOn)
			waitFor(t, h.done, "the late submit")
			close(release)
			now.expect(gateResult)
			_ = before.conn.Close(websocket.StatusNormalClosure, "")
			if err := waitFor(t, drained, "Drain"); err != nil {
				t.Error(err)
			}
		})
	}
}

// lostSink waits for a job until another sink gets it.
type lostSink struct{ detached chan struct{} }

func (lostSink) Assigned(dispatch.Assignment)       {}
func (lostSink) Progress(string, freeslot.Progress) {}
func (lostSink) Result(freeslot.JobStatus)          {}
func (s *lostSink) Detached(string)                 { close(s.detached) }

// A session that waits attaches once more, and in between another one has attached, at this replica
// or another. The Detached is older than the attach that took the job back, and the result comes.
func TestDetachedBeforeAttach(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"same replica", "another replica"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			first, second := gated(t, release)
			h, other := &hooked{Dispatcher: first}, &lostSink{make(chan struct{})}
			at := first
			if where == "another replica" {
				at = second
			}
			h.before = func(ctx context.Context, tenant, jobID string) {
				if s, err := at.Attach(ctx, tenant, jobID, other); err != nil || s.State != freeslot.StateRunning {
					t.Errorf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
				}
				if at == second {
					waittest.Until(t, "the first replica has given it up", func() bool { return first.Outstanding() == 0 })
				}
			}
			p := serve(t, Config{}, h).connect("")
			p.send(`{"type":"submit","id":"r1","job":{"service":"gate"}}`)
			p.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
			p.expect(gateAssigned)
			p.send(`{"type":"attach","id":"a","job_id":"…job"}`)
			p.expect(`{"type":"status","id":"a","job":"…"}`)
			<-other.detached
			close(release)
			p.expect(gateResult)
		})
	}
}

// Of two attaches, the one that found the end may be answered first. The client's last news is
// still the end, and the session no longer waits for the job.
func TestAttachesAnsweredInTurn(t *testing.T) {
	t.Parallel()
	h := &reorder{fakeDispatcher: newFakeDispatcher(), hold: make(chan struct{}), first: make(chan struct{})}
	s := serve(t, Config{}, h)
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
	p.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	p.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	p.send(`{"type":"attach","id":"a1","job_id":"…job"}`)
	<-h.first
	p.send(`{"type":"attach","id":"a2","job_id":"…job"}`)
	const ended = `"job":{"job_id":"…job","tenant":"…","service":"hold","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1}}`
	p.expect(`{"type":"status","id":"a2",` + ended)
	close(h.hold)
	p.expect(`{"type":"status","id":"a1",` + ended)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Drain(ctx); err != nil {
		t.Error(err)
	}
}

// reorder answers the second attach first, with the end.
type reorder struct {
	*fakeDispatcher
	hold, first chan struct{}
	n           int
}

func (r *reorder) Attach(_ context.Context, _, jobID string, _ dispatch.Sink) (freeslot.JobStatus, error) {
	r.mu.Lock()
	r.n++
	n, status := r.n, r.jobs[jobID].status
	r.mu.Unlock()
	if n == 1 {
		close(r.first)
		<-r.hold
		return status, nil
	}
	status.State = freeslot.StateSucceeded
	return status, nil
}

// staged answers the first and the second Attach when the test says so. The second one fails.
type staged struct {
	*dispatch.Dispatcher
	begun  chan int
	answer [2]chan struct{}
	n      atomic.Int64
}

func (s *staged) Attach(ctx context.Context, tenant, jobID string, sink dispatch.Sink) (status freeslot.JobStatus, err error) {
	n := int(s.n.Add(1))
	if n == 1 {
		status, err = s.Dispatcher.Attach(ctx, tenant, jobID, sink)
	} else {
		err = &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "Redis did not answer"}
	}
	s.begun <- n
	<-s.answer[n-1]
	return status, err
}

// A session attaches twice to a job, and one attach fails. In between it submits under the job's
// key. The accepted job ends once, for the client and for the session.
func TestSubmitBetweenAttaches(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		for _, failsLast := range []bool{false, true} {
			t.Run(fmt.Sprintf("ended %v fails last %v", ended, failsLast), func(t *testing.T) {
				t.Parallel()
				release := make(chan struct{})
				first, _ := gated(t, release)
				h := &staged{Dispatcher: first, begun: make(chan int, 2), answer: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
				s := serve(t, Config{DrainGrace: 20 * time.Millisecond}, h)
				p := s.connect("")
				p.send(`{"type":"submit","id":"r1","job":{"service":"gate","idempotency_key":"k"}}`)
				p.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
				p.expect(gateAssigned)
				if ended {
					close(release)
					p.expect(gateResult)
				}
				for _, id := range []string{"a1", "a2"} {
					p.send(`{"type":"attach","id":"` + id + `","job_id":"…job"}`)
					<-h.begun
				}
				answers := []func(){
					func() { close(h.answer[0]); p.expect(`{"type":"status","id":"a1","job":"…"}`) },
					func() {
						close(h.answer[1])
						p.expect(`{"type":"error","id":"a2","job_id":"…job","code":"unavailable","message":"…"}`)
					},
				}
				if !failsLast {
					slices.Reverse(answers)
				}
				answers[0]()
				p.send(`{"type":"submit","id":"r2","job":{"service":"gate","idempotency_key":"k"}}`)
				p.expect(`{"type":"accepted","id":"r2","job_id":"…job"}`)
				if ended && failsLast { // else the status that follows has the end
					p.expect(gateResult)
				}
				answers[1]()
				if !ended {
					close(release)
					p.expect(gateResult)
				}
				drained := make(chan error, 1)
				go func() { drained <- s.Drain(t.Context()) }()
				p.expect(`{"type":"goaway","reason":"the replica is stopping"}`) // and no further news of the job
				p.expectClose(websocket.StatusGoingAway)
				if err := waitFor(t, drained, "Drain"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
