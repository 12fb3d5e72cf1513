package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/session"
)

// TestResultsSurviveACrash: when a replica dies its jobs get their results from another one, before
// or after the client has reached it.
func TestResultsSurviveACrash(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first, second := f.replica(session.Config{}), f.replica(session.Config{})
	c := dial(t, client.Options{}, first, second)
	before, after := submit(t, c, "hold"), submit(t, c, "hold")
	first.kill()
	f.mu.Lock()
	f.jobs[before.ID()].sink = nil
	f.mu.Unlock()
	f.finish(before.ID(), freeslot.StateSucceeded, json.RawMessage("1"))
	if got := wait(t, before); string(got.Result) != "1" {
		t.Errorf("status %+v", got)
	}
	// A new job shows that the client is connected again.
	if got := wait(t, submit(t, c, "echo")); got.State != freeslot.StateSucceeded {
		t.Errorf("status %+v", got)
	}
	f.finish(after.ID(), freeslot.StateSucceeded, json.RawMessage("2"))
	if got := wait(t, after); string(got.Result) != "2" {
		t.Errorf("status %+v", got)
	}
}

// TestLargeResultsAfterAReconnect: all come over one connection, although together
// they are several times what may wait for a client.
func TestLargeResultsAfterAReconnect(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first := f.replica(session.Config{})
	c := dial(t, client.Options{}, first)
	handles := make([]*client.Handle, 64)
	for i := range handles {
		handles[i] = submit(t, c, "hold")
	}
	first.kill()
	result := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	for _, h := range handles {
		f.mu.Lock()
		f.jobs[h.ID()].sink = nil
		f.mu.Unlock()
		f.finish(h.ID(), freeslot.StateSucceeded, result)
	}
	f.replicaAt(strings.TrimPrefix(first.url, "ws://"), session.Config{})
	for _, h := range handles {
		if got := wait(t, h); !bytes.Equal(got.Result, result) {
			t.Fatalf("job %s: %s with a result of %d bytes", h.ID(), got.State, len(got.Result))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attaches != len(handles) {
		t.Errorf("%d attaches for %d jobs", f.attaches, len(handles))
	}
}

// TestSubmitUnderWay: the submit fails with an error about what that means, and is not repeated.
func TestSubmitUnderWay(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica(session.Config{})
	c := dial(t, client.Options{}, r)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	f.mu.Lock()
	f.submitting = func() { entered <- struct{}{}; <-release }
	f.mu.Unlock()
	result := make(chan error, 1)
	go func() {
		_, err := c.Submit(context.Background(), freeslot.Job{Service: "hold"})
		result <- err
	}()
	<-entered
	r.cut()
	err := <-result
	close(release)
	if freeslot.CodeOf(err) != freeslot.CodeUnavailable || !strings.Contains(err.Error(), "may have been carried out") {
		t.Errorf("Submit returned %v", err)
	}
	wait(t, submit(t, c, "echo"))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.submits != 2 {
		t.Errorf("%d submits, want 2", f.submits)
	}
}

func TestGivingUpAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{}))
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	f.mu.Lock()
	f.submitting = func() { cancel(); <-release }
	f.mu.Unlock()
	_, err := c.Submit(ctx, freeslot.Job{Service: "hold"})
	close(release)
	if freeslot.CodeOf(err) != freeslot.CodeUnavailable || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "may have been carried out") {
		t.Errorf("Submit returned %v", err)
	}
	// The answer comes too late, and does no harm.
	wait(t, submit(t, c, "echo"))
}

// TestSubmitWaitsForAConnection: while every replica is away.
func TestSubmitWaitsForAConnection(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica(session.Config{})
	c := dial(t, client.Options{MaxBackoff: 10 * time.Millisecond}, r)
	held := submit(t, c, "hold")
	r.kill()
	// A submit can still be handed to the connection before the client notices the break.
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for {
		_, err := c.Submit(short, freeslot.Job{Service: "echo"})
		if freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Fatalf("Submit returned %v", err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			if !strings.Contains(err.Error(), "nothing was sent") {
				t.Errorf("Submit returned %v", err)
			}
			break
		}
	}
	result := make(chan error, 1)
	go func() {
		_, err := c.Run(deadline(t), freeslot.Job{Service: "echo"})
		result <- err
	}()
	f.replicaAt(strings.TrimPrefix(r.url, "ws://"), session.Config{})
	if err := <-result; err != nil {
		t.Error(err)
	}
	f.finish(held.ID(), freeslot.StateCancelled, nil)
	wait(t, held)
}

// TestGoaway: a replica that stops in order loses nothing, not even the answers under way, and the
// client leaves it soon.
func TestGoaway(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first, second := f.replica(session.Config{DrainGrace: time.Hour}), f.replica(session.Config{})
	c := dial(t, client.Options{}, first, second)
	held := submit(t, c, "hold")
	entered, release := make(chan struct{}), make(chan struct{})
	f.mu.Lock()
	f.submitting = sync.OnceFunc(func() { close(entered); <-release })
	f.mu.Unlock()
	underWay := make(chan *client.Handle, 1)
	go func() {
		h, err := c.Submit(deadline(t), freeslot.Job{Service: "hold"})
		if err != nil {
			t.Error(err)
		}
		underWay <- h
	}()
	<-entered
	f.mu.Lock()
	f.submitting = nil
	f.mu.Unlock()
	drained := make(chan error, 1)
	go func() { drained <- first.Drain(deadline(t)) }()
	// Both jobs end up at the second replica. The client then leaves the first one at once: its
	// grace is an hour.
	for second.Sessions() == 0 {
		// The first replica refuses late submits, and then the loop goes on.
		_, _ = c.Run(deadline(t), freeslot.Job{Service: "echo"})
	}
	close(release)
	late := <-underWay
	if err := <-drained; err != nil {
		t.Error(err)
	}
	for _, h := range []*client.Handle{held, late} {
		f.finish(h.ID(), freeslot.StateSucceeded, json.RawMessage("7"))
		if got := wait(t, h); string(got.Result) != "7" {
			t.Errorf("status %+v", got)
		}
	}
}

// TestAttachIsRepeated: the store fails for a moment while the client takes its jobs to another
// replica.
func TestAttachIsRepeated(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica(session.Config{})
	c := dial(t, client.Options{}, r)
	h := submit(t, c, "hold")
	f.mu.Lock()
	f.attachErr = &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "try again"}
	f.mu.Unlock()
	r.cut()
	runUntilConnected(t, c)
	f.finish(h.ID(), freeslot.StateSucceeded, nil)
	wait(t, h)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attaches != 2 {
		t.Errorf("%d attaches, want 2", f.attaches)
	}
}

// TestLostRecord: the job is gone when the client comes back. The client gets an error.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica(session.Config{})
	c := dial(t, client.Options{}, r)
	h := submit(t, c, "hold")
	f.mu.Lock()
	delete(f.jobs, h.ID())
	f.mu.Unlock()
	r.cut()
	if _, err := h.Wait(deadline(t)); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("Wait returned %v", err)
	}
}

// scripted is a replica that sends the given frames and then nothing more, not even an answer to a
// ping.
func scripted(t *testing.T, frames ...string) *replica {
	t.Helper()
	return talking(t, func(ctx context.Context, conn *websocket.Conn) {
		for _, frame := range frames {
			_ = conn.Write(ctx, websocket.MessageText, []byte(frame))
		}
	})
}

// talking is a replica that calls f for each connection.
func talking(t *testing.T, f func(ctx context.Context, conn *websocket.Conn)) *replica {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"freeslot.v1"}})
		if err != nil {
			t.Error(err)
			return
		}
		f(r.Context(), conn)
		<-over
		_ = conn.CloseNow()
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	hangUp := sync.OnceFunc(func() { close(over) })
	t.Cleanup(func() { hangUp(); _ = server.Close(); <-served })
	return &replica{url: "ws://" + listener.Addr().String(), hangUp: hangUp}
}

const welcome = `{"type":"welcome","protocol":"freeslot.v1","max_batch":1}`

// TestBadReplicas: the client leaves a replica that falls silent, sends nonsense or is about to
// stop.
func TestBadReplicas(t *testing.T) {
	t.Parallel()
	for name, frames := range map[string][]string{
		"silent":              {welcome},
		"nonsense":            {welcome, `{"type":7}`},
		"news for nobody":     {welcome, `[{"type":"later"},{"type":"result","job":{"job_id":"0-1"}},{"type":"accepted","id":"x","job_id":"0-1"}]`},
		"goaway":              {welcome, `{"type":"goaway","reason":"test"}`},
		"goaway with welcome": {`[` + welcome + `,{"type":"goaway","reason":"test"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad, good := scripted(t, frames...), newFleet(t).replica(session.Config{})
			c := dial(t, client.Options{PingInterval: 5 * time.Millisecond, PingTimeout: 50 * time.Millisecond}, bad, good)
			runUntilConnected(t, c)
			bad.hangUp() // or the client's Close waits for it
		})
	}
}

func TestNoReplica(t *testing.T) {
	t.Parallel()
	for _, frame := range []string{`{"type":"hello"}`, `[]`, `<html>`, `{"type":"welcome","protocol":"freeslot.v2"}`} {
		_, err := client.Dial(deadline(t), scripted(t, frame).url, client.Options{})
		if freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Errorf("%s: %v; want freeslot.CodeOf(err) == freeslot.CodeUnavailable", frame, err)
		}
	}
}

// runUntilConnected runs jobs until one succeeds. The client notices a break only after a while,
// and submits fail until then.
func runUntilConnected(t *testing.T, c *client.Client) {
	t.Helper()
	for {
		_, err := c.Run(deadline(t), freeslot.Job{Service: "echo"})
		if err == nil {
			return
		}
		if freeslot.CodeOf(err) != freeslot.CodeUnavailable || errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
}

// TestEveryAcceptedJobGetsItsResult submits from many goroutines while replicas
// lose all connections again and again.
func TestEveryAcceptedJobGetsItsResult(t *testing.T) {
	t.Parallel()
	const submitters, jobs = 8, 40
	f := newFleet(t)
	replicas := []*replica{f.replica(session.Config{}), f.replica(session.Config{})}
	c := dial(t, client.Options{MaxBackoff: 5 * time.Millisecond}, replicas...)
	var accepted, lost int
	var mu sync.Mutex
	var submitting sync.WaitGroup
	for s := range submitters {
		submitting.Go(func() {
			for j := range jobs {
				service := []string{"echo", "hold"}[j%2]
				payload := json.RawMessage(fmt.Sprintf(`"%d/%d"`, s, j))
				h, err := c.Submit(deadline(t), freeslot.Job{Service: service, Payload: payload})
				mu.Lock()
				if err != nil {
					lost++
				} else {
					accepted++
				}
				mu.Unlock()
				switch {
				case err != nil:
					if freeslot.CodeOf(err) != freeslot.CodeUnavailable {
						t.Error(err)
					}
					continue
				case service == "hold":
					f.finish(h.ID(), freeslot.StateSucceeded, payload)
				}
				if got := wait(t, h); string(got.Result) != string(payload) {
					t.Errorf("job %s of %s: result %s", h.ID(), payload, got.Result)
				}
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(3 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				replicas[rand.IntN(len(replicas))].cut()
			}
		}
	}()
	submitting.Wait()
	close(stop)
	<-stopped
	t.Logf("%d accepted, %d lost", accepted, lost)
	if accepted == 0 {
		t.Error("no job was accepted")
	}
}
