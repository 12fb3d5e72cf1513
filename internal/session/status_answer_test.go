package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// ended adds n jobs that have ended with a result of about size bytes.
func (d *fakeDispatcher) ended(n, size int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = d.add(dispatch.Request{Tenant: "acme", Job: &freeslot.Job{Service: "hold"}}, nil).JobID
		d.finish(ids[i], freeslot.StateSucceeded, json.RawMessage(`"`+strings.Repeat("x", size)+`"`))
	}
	return ids
}

// ask sends a request about each job, and returns when all have been read.
func (p *peer) ask(request string, ids []string) {
	p.t.Helper()
	for i, id := range ids {
		p.send(fmt.Sprintf(`{"type":%q,"id":"r%d","job_id":%q}`, request, i, id))
	}
	p.send(`{"type":"ping","id":"p"}`)
	p.expect(`{"type":"pong","id":"p"}`)
}

// TestAnswersWaitForRoom: a client that asks for the results of many jobs at once gets them all,
// although together they are many times larger than the queue.
func TestAnswersWaitForRoom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request, query string
		jobs, size     int
	}{
		"attach":                    {request: "attach", jobs: 64, size: 64 << 10},
		"attach, batch":             {request: "attach", query: "?frames=batch", jobs: 64, size: 64 << 10},
		"cancel":                    {request: "cancel", jobs: 64, size: 64 << 10},
		"more than half the queue":  {request: "attach", jobs: 60, size: 175 << 10},
		"more than the whole queue": {request: "attach", jobs: 10, size: 512 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDispatcher()
			ids := d.ended(test.jobs, test.size)
			release := make(chan struct{})
			d.answering = func() { <-release }
			s := serve(t, Config{QueueBytes: 256 << 10}, d)
			p := s.connect(test.query)
			p.conn.SetReadLimit(-1)
			p.ask(test.request, ids)
			close(release)
			missing := map[string]bool{}
			for _, id := range ids {
				missing[id] = true
			}
			for range ids {
				var m struct {
					Type string
					Job  freeslot.JobStatus
				}
				if err := json.Unmarshal(p.read(), &m); err != nil {
					t.Fatal(err)
				}
				if m.Type != "status" || !missing[m.Job.ID] || len(m.Job.Result) != test.size+2 {
					t.Fatalf("%s of job %s with %d bytes", m.Type, m.Job.ID, len(m.Job.Result))
				}
				delete(missing, m.Job.ID)
			}
		})
	}
}

// TestAnswersAreAskedForInTurn: the answers that a session holds are bounded.
func TestAnswersAreAskedForInTurn(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	ids := d.ended(3*maxTurns, 1)
	entered, release := make(chan struct{}, len(ids)), make(chan struct{})
	d.answering = func() { entered <- struct{}{}; <-release }
	p := serve(t, Config{}, d).connect("")
	p.ask("attach", ids)
	for range maxTurns {
		waitFor(t, entered, "an attach")
	}
	if n := len(entered); n > 0 {
		t.Errorf("%d attaches more than %d are under way", n, maxTurns)
	}
	close(release)
	for range ids {
		p.expect(`{"type":"status","id":"…","job":"…"}`)
	}
}

// TestWaitingAnswersEndWithTheSession, whatever ends it. A cancel that was read is still carried
// out.
func TestWaitingAnswersEndWithTheSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *server, p *peer){
		"client leaves": func(_ *server, p *peer) { _ = p.conn.CloseNow() },
		"client hangs":  func(s *server, _ *peer) { s.expectClosed(closedSlow) },
		"stop": func(s *server, _ *peer) {
			if err := s.Stop(s.t.Context()); err != nil {
				s.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDispatcher()
			s := serve(t, Config{QueueBytes: 1 << 20, WriteTimeout: 200 * time.Millisecond, CloseTimeout: 200 * time.Millisecond}, d)
			p := s.connect("")
			held := hold(p, "job")
			entered, release := make(chan struct{}, maxTurns), make(chan struct{})
			d.answering = func() {
				select {
				case entered <- struct{}{}:
					<-release
				default:
				}
			}
			p.ask("attach", d.ended(50, 1<<20))
			for range maxTurns {
				waitFor(t, entered, "an attach")
			}
			p.ask("cancel", []string{held})
			close(release)
			end(s, p)
			waitFor(t, d.forgotten, "the session to end")
			d.mu.Lock()
			defer d.mu.Unlock()
			if state := d.jobs[held].status.State; state != freeslot.StateCancelled {
				t.Errorf("the job is %s, but the cancel was read", state)
			}
		})
	}
}

// TestDrainWithWaitingAnswers: the client gets an answer to everything that was read.
func TestDrainWithWaitingAnswers(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	ids := d.ended(64, 64<<10)
	release, asked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.answering = func() {
		once.Do(func() { close(asked) })
		<-release
	}
	s := serve(t, Config{QueueBytes: 256 << 10, DrainGrace: 20 * time.Millisecond}, d)
	p := s.connect("")
	p.conn.SetReadLimit(-1)
	p.ask("attach", ids)
	waitFor(t, asked, "the first attach") // otherwise a busy machine drains before any is read
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	p.expect(`{"type":"goaway","reason":"the replica is stopping"}`)
	close(release)
	count := map[string]int{}
	for range ids {
		var m struct{ Type, Code string }
		if err := json.Unmarshal(p.read(), &m); err != nil {
			t.Fatal(err)
		}
		count[m.Type+m.Code]++
	}
	if count["status"] == 0 || count["status"]+count["errorunavailable"] != len(ids) {
		t.Errorf("answers %v, want %d", count, len(ids))
	}
	p.expectClose(websocket.StatusGoingAway)
	if err := waitFor(t, drained, "Drain"); err != nil {
		t.Error(err)
	}
}
