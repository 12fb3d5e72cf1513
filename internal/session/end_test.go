package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/wire"
)

// flood makes results for a session until it is cut off: its one job ends again and again, as far
// as the session knows. It returns the number of results.
func flood(t *testing.T, d *fakeDispatcher, id string) int {
	t.Helper()
	d.mu.Lock()
	sink := d.jobs[id].sink
	d.mu.Unlock()
	s, ok := sink.(*session)
	if !ok {
		t.Fatal("no session waits")
	}
	result := json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
	for n := 1; ; n++ {
		s.mu.Lock()
		s.jobs[keyOf(id)] = nil
		s.mu.Unlock()
		s.Result(freeslot.JobStatus{ID: id, State: freeslot.StateSucceeded, Result: result})
		if s.conn.Ended() != nil {
			return n
		}
	}
}

func hold(p *peer, job string) string {
	p.t.Helper()
	p.send(`{"type":"submit","id":"h","job":{"service":"hold"}}`)
	p.expect(`{"type":"accepted","id":"h","job_id":"…` + job + `"}`)
	p.expect(`{"type":"assigned","job_id":"…` + job + `","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	id, _ := p.vars[job].(string)
	return id
}

// TestSlowClientGetsTheReason: a client that does not read is cut off. If it reads again in time,
// it gets the reason.
func TestSlowClientGetsTheReason(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{QueueBytes: 1 << 20}, d)
	p := s.connect("")
	flood(t, d, hold(p, "job"))
	p.expectClose(wire.CloseSlowClient)
	waitFor(t, d.forgotten, "the session to be forgotten")
	s.expectClosed(closedSlow)
}

// TestSlowClientIsCut: a client that never reads again holds nothing for longer than the close
// timeout.
func TestSlowClientIsCut(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "?frames=batch"} {
		d := newFakeDispatcher()
		s := serve(t, Config{QueueBytes: 1 << 20, CloseTimeout: 50 * time.Millisecond}, d)
		p := s.connect(query)
		flood(t, d, hold(p, "job"))
		waitFor(t, d.forgotten, "the session to be forgotten")
		s.expectClosed(closedSlow)
	}
}

// TestStuckWriteIsCut: the queue has room, but not even one frame gets out.
func TestStuckWriteIsCut(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{WriteTimeout: 50 * time.Millisecond, QueueBytes: 1 << 30}, d)
	p := s.connect("")
	flood(t, d, hold(p, "job"))
	waitFor(t, d.forgotten, "the session to be forgotten")
	s.expectClosed(closedSlow)
}

// expectClosed waits until no session is left and checks the count of endings.
func (s *server) expectClosed(reason string) {
	s.t.Helper()
	for _, open := range s.sessions.All() {
		waitFor(s.t, open.done, "the session to end")
	}
	if got := s.metric("freeslot_session_closed_total", reason); got != 1 {
		s.t.Errorf("%v sessions closed as %s, want 1", got, reason)
	}
}

// raw is a client that completes the handshake and then does nothing by itself.
func (s *server) raw() (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	_, err = conn.Write([]byte("GET /v1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer acme\r\n\r\n"))
	if err != nil {
		s.t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("handshake: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	return conn, reader
}

func TestSilentClientIsCut(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{PingInterval: time.Millisecond, PingTimeout: 10 * time.Millisecond, CloseTimeout: 50 * time.Millisecond}, d)
	s.raw()
	waitFor(t, d.forgotten, "the session to be forgotten")
	s.expectClosed(closedSilent)
}

// TestPausedReaderIsNotSilence: while the session itself does not read, it cannot see the client's
// pong.
func TestPausedReaderIsNotSilence(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{PingTimeout: time.Millisecond}, newFakeDispatcher())
	_, reader := s.raw()
	if _, err := reader.Peek(1); err != nil { // the welcome: the session is there
		t.Fatal(err)
	}
	for _, open := range s.sessions.All() {
		if _, alive := open.conn.Alive(context.Background()); alive {
			t.Error("a client that does not answer counts as alive")
		}
		open.conn.Pause()
		if _, alive := open.conn.Alive(context.Background()); !alive {
			t.Error("a client that is held back counts as silent")
		}
		open.Cut()
	}
}

// TestAnsweringClientStays: the client only answers pings.
func TestAnsweringClientStays(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{PingInterval: time.Millisecond, PingTimeout: patience}, d)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pings := make(chan struct{}, 100)
	conn, _, err := websocket.Dial(ctx, s.url, &websocket.DialOptions{
		HTTPHeader:     http.Header{"Authorization": {"Bearer acme"}},
		OnPingReceived: func(context.Context, []byte) bool { pings <- struct{}{}; return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	readCtx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, _, err := conn.Read(readCtx); err != nil {
				return
			}
		}
	}()
	for range 20 {
		waitFor(t, pings, "a ping")
	}
	if s.Sessions() != 1 {
		t.Error("the session is gone")
	}
	stop()
	<-done
	waitFor(t, d.forgotten, "the session to end")
}

func TestDrain(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{DrainGrace: 20 * time.Millisecond}, d)
	idle, busy := s.connect(""), s.connect("")
	id := hold(busy, "job")
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	idle.expect(`{"type":"goaway","reason":"the replica is stopping"}`)
	busy.expect(`{"type":"goaway","reason":"the replica is stopping"}`)
	idle.expectClose(websocket.StatusGoingAway)

	_, resp, err := s.dial(dialing{token: "acme"})
	if err == nil {
		t.Fatal("a new session was let in")
	}
	expectError(t, resp, http.StatusServiceUnavailable, "unavailable")
	busy.send(`{"type":"submit","id":"r1","job":{"service":"echo"}}`)
	busy.expect(`{"type":"error","id":"r1","code":"unavailable","message":"the replica is stopping: the job was not submitted","retry_after_ms":1000}`)
	busy.send(`{"type":"attach","id":"r2","job_id":"0-x"}`)
	busy.expect(`{"type":"error","id":"r2","job_id":"0-x","code":"unavailable","message":"the replica is stopping: attach on another replica","retry_after_ms":1000}`)
	select {
	case err := <-drained:
		t.Fatalf("Drain returned %v although a job is out", err)
	default:
	}
	d.finish(id, freeslot.StateCancelled, nil)
	busy.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"cancelled","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
	busy.expectClose(websocket.StatusGoingAway)
	if err := waitFor(t, drained, "Drain"); err != nil {
		t.Error(err)
	}
}

func TestDrainLimit(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{}, d)
	p := s.connect("")
	hold(p, "job")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 did not end") {
		t.Errorf("Drain returned %v", err)
	}
	p.expect(`{"type":"goaway","reason":"the replica is stopping"}`)
	p.expectClose(websocket.StatusGoingAway)
	s.expectClosed(closedDrainLimit)
}

func TestStop(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{}, newFakeDispatcher())
	p := s.connect("")
	hold(p, "job")
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(t.Context()) }()
	p.expectClose(websocket.StatusGoingAway)
	if err := waitFor(t, stopped, "Stop"); err != nil {
		t.Error(err)
	}
	if s.Sessions() != 0 {
		t.Error("a session is left")
	}
}

// TestStopCutsOff: a client that does not close, and a submit that does not end
// before its context does.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	entered, release := make(chan struct{}), make(chan struct{})
	d.submitting = func([]dispatch.Request) { close(entered); <-release }
	s := serve(t, Config{}, d)
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
	s.raw()
	waitFor(t, entered, "the submit")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop returned %v", err)
	}
	<-s.calls.Done()
	close(release)
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
