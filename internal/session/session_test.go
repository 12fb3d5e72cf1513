package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

func TestSubmit(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{}, newFakeDispatcher())
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","job":{"service":"echo","payload":{"text":"hi"},"slots":2}}`)
	p.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	p.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	p.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"echo","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":2,
		"result":{"text":"hi"},"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
	p.send(`{"type":"submit","id":"r2","job":{"service":"fail"}}`)
	p.expect(`{"type":"accepted","id":"r2","job_id":"…job2"}`)
	p.expect(`{"type":"assigned","job_id":"…job2","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	p.expect(`{"type":"result","job":{"job_id":"…job2","tenant":"acme","service":"fail","class":"…","state":"failed","node":"node-1","attempt":1,"slots":1,
		"error":{"code":"handler_error","message":"it broke"},"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
	for service, want := range map[string]string{
		"nowhere": `{"type":"error","id":"r3","code":"no_matching_node","message":"no node fits","breakdown":{"service":1}}`,
		"busy":    `{"type":"error","id":"r3","code":"overloaded","message":"too many jobs wait","retry_after_ms":200}`,
		"broken":  `{"type":"error","id":"r3","code":"internal","message":"internal error, see the replica's log"}`,
	} {
		p.send(`{"type":"submit","id":"r3","job":{"service":"` + service + `"}}`)
		p.expect(want)
	}
	p.send(`{"type":"ping","id":"r4"}`)
	p.expect(`{"type":"pong","id":"r4"}`)
	if err := p.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

func TestSubmitBatch(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{MaxPayloadBytes: 10}, newFakeDispatcher())
	p := s.connect("")
	p.send(`{"type":"submit","id":"b","jobs":[{"service":"hold"},{"service":"a b"},{"service":"nowhere"},{"service":"echo","payload":"0123456789"},{"service":"hold"}]}`)
	p.expect(`{"type":"error","id":"b","index":1,"code":"invalid_argument","field":"jobs[1].service","message":"…"}`)
	p.expect(`{"type":"error","id":"b","index":3,"code":"payload_too_large","field":"jobs[3].payload","message":"jobs[3].payload has 12 bytes, the limit is 10"}`)
	p.expect(`{"type":"accepted","id":"b","index":0,"job_id":"…j0"}`)
	p.expect(`{"type":"assigned","job_id":"…j0","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	p.expect(`{"type":"error","id":"b","index":2,"code":"no_matching_node","message":"no node fits","breakdown":{"service":1}}`)
	p.expect(`{"type":"accepted","id":"b","index":4,"job_id":"…j4"}`)
	p.expect(`{"type":"assigned","job_id":"…j4","node":"node-1","attempt":1,"assigned_at_ms":1}`)
}

func TestRefusedFramesDoNotEndTheSession(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{MaxPayloadBytes: 10, MaxBatch: 2}, newFakeDispatcher())
	p := s.connect("")
	for frame, want := range map[string]string{
		`{`:                        `{"type":"error","code":"invalid_argument","message":"…"}`,
		`{"type":"ping"}`:          `{"type":"error","code":"invalid_argument","field":"id","message":"id is missing"}`,
		`{"type":"nap","id":"r1"}`: `{"type":"error","id":"r1","code":"invalid_argument","field":"type","message":"…"}`,
		`{"type":"submit","id":"r1","job":{"service":"echo","requirement":{"pools":"x"}}}`:        `{"type":"error","id":"r1","code":"invalid_argument","field":"job.requirement.pools","message":"job.requirement.pools is not a known field"}`,
		`{"type":"submit","id":"r1","job":{"service":"echo","payload":"0123456789"}}`:             `{"type":"error","id":"r1","code":"payload_too_large","field":"job.payload","message":"job.payload has 12 bytes, the limit is 10"}`,
		`{"type":"submit","id":"r1","jobs":[{"service":"echo"},{"service":"a"},{"service":"b"}]}`: `{"type":"error","id":"r1","code":"invalid_argument","field":"jobs","message":"…"}`,
		`{"type":"submit","id":"r1","job":{"service":"echo","payload":tru}}`:                      `{"type":"error","id":"r1","code":"invalid_argument","field":"job.payload","message":"…"}`,
	} {
		p.send(frame)
		p.expect(want)
	}
	p.send(`{"type":"ping","id":"r2"}`)
	p.expect(`{"type":"pong","id":"r2"}`)
	if got := s.metric("freeslot_session_malformed_frames_total"); got != 6 {
		t.Errorf("%v malformed frames counted, want 6", got)
	}
}

func TestFramesThatEndTheSession(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{MaxPayloadBytes: 10, MaxFrameBytes: 1}, newFakeDispatcher())
	p := s.connect("")
	p.write(websocket.MessageBinary, []byte(`{"type":"ping","id":"r1"}`))
	p.expectClose(websocket.StatusUnsupportedData)

	p = s.connect("")
	p.write(websocket.MessageText, []byte("{\"type\":\"ping\",\"id\":\"\xff\"}"))
	p.expectClose(websocket.StatusInvalidFramePayloadData)

	p = s.connect("")
	fits := `{"type":"ping","id":"r1"}`
	fits += strings.Repeat(" ", 10+envelopeBytes-len(fits))
	p.send(fits)
	p.expect(`{"type":"pong","id":"r1"}`)
	p.send(fits + " ")
	p.expect(fmt.Sprintf(`{"type":"error","code":"payload_too_large","message":"the frame has more than %d bytes, which is the limit"}`, 10+envelopeBytes))
	p.expectClose(websocket.StatusMessageTooBig)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{}, newFakeDispatcher())
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
	p.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	p.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)

	stranger, _, err := s.dial(dialing{token: "other"})
	if err != nil {
		t.Fatal(err)
	}
	stranger.vars = p.vars
	stranger.read()
	stranger.send(`{"type":"cancel","id":"r1","job_id":"…job"}`)
	stranger.expect(`{"type":"error","id":"r1","job_id":"…job","code":"not_found","field":"job_id","message":"no such job"}`)

	operator, _, err := s.dial(dialing{token: "root"})
	if err != nil {
		t.Fatal(err)
	}
	operator.vars = p.vars
	operator.read()
	operator.send(`{"type":"cancel","id":"r1","job_id":"…job"}`)
	operator.expect(`{"type":"status","id":"r1","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"cancelling","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1}}`)
	p.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"cancelled","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
}

func TestAttach(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{}, d)
	first, second := s.connect(""), s.connect("")
	second.vars = first.vars
	first.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
	first.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	first.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	running := `{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"running","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1}`
	done := `{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":1,"result":7,"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}`

	second.send(`{"type":"attach","id":"a1","job_id":"…job"}`)
	second.expect(`{"type":"status","id":"a1","job":` + running + `}`)
	first.expect(`{"type":"detached","job_id":"…job"}`)

	// The session that has the job attaches again: nothing changes.
	second.send(`{"type":"attach","id":"a2","job_id":"…job"}`)
	second.expect(`{"type":"status","id":"a2","job":` + running + `}`)
	id, _ := first.vars["job"].(string)
	d.finish(id, freeslot.StateSucceeded, json.RawMessage("7"))
	second.expect(`{"type":"result","job":` + done + `}`)

	// A job that has ended is only read, and no result follows.
	first.send(`{"type":"attach","id":"a3","job_id":"…job"}`)
	first.expect(`{"type":"status","id":"a3","job":` + done + `}`)
	first.send(`{"type":"attach","id":"a4","job_id":"0-nothing"}`)
	first.expect(`{"type":"error","id":"a4","job_id":"0-nothing","code":"not_found","field":"job_id","message":"no such job"}`)
	first.send(`{"type":"ping","id":"p"}`)
	first.expect(`{"type":"pong","id":"p"}`)
}

// TestResultRacesAttach: the job ends, or is taken away, before the attach returns.
func TestResultRacesAttach(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{}, d)
	first, second := s.connect(""), s.connect("")
	second.vars = first.vars
	first.send(`{"type":"submit","id":"r1","jobs":[{"service":"hold"},{"service":"hold"}]}`)
	for _, job := range []string{"a", "b"} {
		first.expect(`{"type":"accepted","id":"r1","index":"…","job_id":"…` + job + `"}`)
		first.expect(`{"type":"assigned","job_id":"…` + job + `","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	}
	d.attaching = func(id string) {
		if id == first.vars["a"] {
			d.finish(id, freeslot.StateSucceeded, json.RawMessage("7"))
			return
		}
		d.mu.Lock()
		sink := d.jobs[id].sink
		d.mu.Unlock()
		sink.Detached(id)
	}
	second.send(`{"type":"attach","id":"a1","job_id":"…a"}`)
	second.expect(`{"type":"status","id":"a1","job":{"job_id":"…a","tenant":"acme","service":"hold","class":"…","state":"running","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1}}`)
	second.expect(`{"type":"result","job":{"job_id":"…a","tenant":"acme","service":"hold","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":1,"result":7,"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
	second.send(`{"type":"attach","id":"a2","job_id":"…b"}`)
	second.expect(`{"type":"status","id":"a2","job":{"job_id":"…b","tenant":"acme","service":"hold","class":"…","state":"running","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1}}`)
	second.expect(`{"type":"detached","job_id":"…b"}`)
}

func TestTooManyJobs(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{MaxJobs: 2}, d)
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","jobs":[{"service":"hold"},{"service":"hold"},{"service":"hold"}]}`)
	const overloaded = `"code":"overloaded","message":"the session has 2 jobs without a result, which is its limit","retry_after_ms":100}`
	p.expect(`{"type":"error","id":"r1","index":2,` + overloaded)
	for _, job := range []string{"a", "b"} {
		p.expect(`{"type":"accepted","id":"r1","index":"…","job_id":"…` + job + `"}`)
		p.expect(`{"type":"assigned","job_id":"…` + job + `","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	}
	p.send(`{"type":"submit","id":"r2","job":{"service":"hold"}}`)
	p.expect(`{"type":"error","id":"r2",` + overloaded)
	p.send(`{"type":"attach","id":"r3","job_id":"0-x"}`)
	p.expect(`{"type":"error","id":"r3","job_id":"0-x",` + overloaded)
	id, _ := p.vars["a"].(string)
	d.finish(id, freeslot.StateCancelled, nil)
	p.read()
	p.send(`{"type":"submit","id":"r4","job":{"service":"hold"}}`)
	p.expect(`{"type":"accepted","id":"r4","job_id":"…c"}`)
}

// TestRequestsUnderWayAreBounded: with one submit under way the next one waits, and the ping behind
// it stays unread.
func TestRequestsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	entered, release := make(chan string), make(chan struct{})
	d.submitting = func(reqs []dispatch.Request) { entered <- string(reqs[0].Job.Payload); <-release }
	s := serve(t, Config{MaxRequests: 1}, d)
	p := s.connect("")
	for i := range 2 {
		p.send(fmt.Sprintf(`{"type":"submit","id":"r","job":{"service":"nowhere","payload":%d}}`, i))
	}
	p.send(`{"type":"ping","id":"p"}`)
	if got := waitFor(t, entered, "the first submit"); got != "0" {
		t.Errorf("submit %s came first", got)
	}
	select {
	case got := <-entered:
		t.Fatalf("submit %s began while another was under way", got)
	default:
	}
	release <- struct{}{}
	p.expect(`{"type":"error","id":"r","code":"no_matching_node","message":"no node fits","breakdown":{"service":1}}`)
	if got := waitFor(t, entered, "the second submit"); got != "1" {
		t.Errorf("submit %s came second", got)
	}
	p.expect(`{"type":"pong","id":"p"}`)
	release <- struct{}{}
	p.expect(`{"type":"error","id":"r","code":"no_matching_node","message":"no node fits","breakdown":{"service":1}}`)
}

// TestJobsUnderWayAreBounded: batches under way whose answers together would overflow the queue
// wait for each other. So a client that only submits much is not cut off as slow.
func TestJobsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	entered, release := make(chan string), make(chan struct{})
	d.submitting = func(reqs []dispatch.Request) { entered <- string(reqs[0].Job.Payload); <-release }
	s := serve(t, Config{MaxBatch: 2, QueueMessages: 12}, d)
	p := s.connect("")
	const batches = 6
	for i := range batches {
		p.send(fmt.Sprintf(`{"type":"submit","id":"r","jobs":[{"service":"nowhere","payload":%d},{"service":"nowhere"}]}`, i))
	}
	for i := range batches {
		if got := waitFor(t, entered, "a submit"); got != fmt.Sprint(i) {
			t.Errorf("batch %s came in place of %d", got, i)
		}
		select {
		case got := <-entered:
			t.Fatalf("batch %s began while batch %d was under way", got, i)
		default:
		}
		release <- struct{}{}
		for index := range 2 {
			p.expect(fmt.Sprintf(`{"type":"error","id":"r","index":%d,"code":"no_matching_node","message":"no node fits","breakdown":{"service":1}}`, index))
		}
	}
}

func TestRefusedHandshakes(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{AllowedOrigins: []string{"https://app.example.org"}, MaxSessions: 1}, newFakeDispatcher())
	for name, tt := range map[string]struct {
		dialing
		status int
		code   string
	}{
		"no token":               {dialing{}, http.StatusUnauthorized, "unauthenticated"},
		"bad token":              {dialing{token: "x"}, http.StatusUnauthorized, "unauthenticated"},
		"foreign origin":         {dialing{token: "acme", origin: "https://evil.test"}, http.StatusForbidden, "permission_denied"},
		"foreign scheme":         {dialing{token: "acme", origin: "http://app.example.org"}, http.StatusForbidden, "permission_denied"},
		"null origin":            {dialing{token: "acme", origin: "null"}, http.StatusForbidden, "permission_denied"},
		"other subprotocols":     {dialing{token: "acme", protocols: []string{"freeslot.v2", "mqtt"}}, http.StatusBadRequest, "invalid_argument"},
		"unknown kind of frames": {dialing{token: "acme", query: "?frames=some"}, http.StatusBadRequest, "invalid_argument"},
	} {
		t.Run(name, func(t *testing.T) {
			_, resp, err := s.dial(tt.dialing)
			if err == nil {
				t.Fatal("was let in")
			}
			expectError(t, resp, tt.status, tt.code)
		})
	}
	t.Run("no upgrade", func(t *testing.T) {
		resp, err := http.Get("http" + strings.TrimPrefix(s.url, "ws") + "/v1/ws")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		expectError(t, resp, http.StatusUpgradeRequired, "invalid_argument")
	})
	t.Run("full", func(t *testing.T) {
		p := s.connect("")
		_, resp, err := s.dial(dialing{token: "acme"})
		if err == nil {
			t.Fatal("was let in")
		}
		expectError(t, resp, http.StatusServiceUnavailable, "overloaded")
		if resp.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
		}
		if got := s.metric("freeslot_session_refused_total", "overloaded"); got != 1 {
			t.Errorf("%v refusals counted", got)
		}
		_ = p.conn.CloseNow()
	})
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{AllowedOrigins: []string{"https://app.example.org"}}, newFakeDispatcher())
	for _, d := range []dialing{
		{token: "acme"},
		{token: "acme", protocols: []string{"x", "freeslot.v1"}},
		{token: "acme", origin: "https://app.example.org"},
		{token: "acme", origin: "http" + strings.TrimPrefix(s.url, "ws")},
		{token: "acme", query: "?frames=single&other=1"},
	} {
		p, _, err := s.dial(d)
		if err != nil {
			t.Errorf("%+v: %v; want no error", d, err)
			continue
		}
		want := ""
		if len(d.protocols) > 0 {
			want = wire.Protocol
		}
		if got := p.conn.Subprotocol(); got != want {
			t.Errorf("%+v: subprotocol %q, want %q", d, got, want)
		}
	}
}

// TestManySessions: each session gets the news of its own jobs and of no others, for each job in
// order, whatever the mode.
func TestManySessions(t *testing.T) {
	t.Parallel()
	const sessions, jobs = 50, 40
	s := serve(t, Config{}, newFakeDispatcher())
	var wg sync.WaitGroup
	for i := range sessions {
		query := ""
		if i%2 == 0 {
			query = "?frames=batch"
		}
		p := s.connect(query)
		wg.Go(func() {
			for j := range jobs {
				p.send(fmt.Sprintf(`{"type":"submit","id":"r%d","job":{"service":"echo","payload":"%d/%d"}}`, j, i, j))
			}
			if err := p.collect(i, jobs); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	waittest.Until(t, "all messages are counted, which is after their write", func() bool {
		return s.metric("freeslot_session_messages_total") >= sessions*(1+3*jobs)
	})
	if got := s.metric("freeslot_session_messages_total"); got != sessions*(1+3*jobs) {
		t.Errorf("%v messages counted, want %d", got, sessions*(1+3*jobs))
	}
	if got := s.metric("freeslot_sessions"); got != sessions {
		t.Errorf("%v sessions counted", got)
	}
}

func (p *peer) collect(session, jobs int) error {
	requests, stages := map[string]string{}, map[string]int{}
	for done := 0; done < jobs; {
		var failure error
		err := wire.DecodeMessages(p.readFrame(), func(m *wire.Message) {
			id := m.JobID
			if m.Type == wire.TypeResult {
				id = m.Job.ID
			}
			want := []wire.MessageType{wire.TypeAccepted, wire.TypeAssigned, wire.TypeResult}[stages[id]]
			if m.Type != want {
				failure = errors.Join(failure, fmt.Errorf("job %s: %s, expected %s", id, m.Type, want))
				return
			}
			stages[id]++
			switch m.Type {
			case wire.TypeAccepted:
				requests[id] = m.ID
			case wire.TypeResult:
				done++
				if got, want := string(m.Job.Result), fmt.Sprintf(`"%d/%s"`, session, requests[id][1:]); got != want {
					failure = errors.Join(failure, fmt.Errorf("job %s of %s: result %s, expected %s", id, requests[id], got, want))
				}
			}
		})
		if err = errors.Join(err, failure); err != nil {
			return err
		}
	}
	return nil
}

func TestForgetAfterTheLastSubmit(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	entered, release := make(chan struct{}), make(chan struct{})
	d.submitting = func([]dispatch.Request) { close(entered); <-release }
	s := serve(t, Config{}, d)
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
	waitFor(t, entered, "the submit")
	_ = p.conn.CloseNow()
	select {
	case <-d.forgotten:
		t.Fatal("the sink was forgotten while a submit was under way")
	default:
	}
	close(release)
	waitFor(t, d.forgotten, "the sink to be forgotten")
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, job := range d.jobs {
		if job.sink != nil {
			t.Errorf("job %s still has the sink", id)
		}
	}
}

// TestAttachEndsWithItsSession: an attach that still waits for Redis when its client is gone takes
// the job from no session that attached since.
func TestAttachEndsWithItsSession(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{}, d)
	owner := s.connect("")
	owner.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
	owner.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	owner.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":"…"}`)
	entered := make(chan struct{})
	d.hanging = func(ctx context.Context) { close(entered); <-ctx.Done() }
	d.mu.Lock()
	id := slices.Collect(maps.Keys(d.jobs))[0]
	d.mu.Unlock()
	p := s.connect("")
	p.send(`{"type":"attach","id":"r1","job_id":"` + id + `"}`)
	waitFor(t, entered, "the attach")
	_ = p.conn.CloseNow()
	waitFor(t, d.forgotten, "the sink to be forgotten")
	d.finish(id, freeslot.StateSucceeded, nil)
	owner.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":"…","assigned_at_ms":"…","finished_at_ms":"…"}}`)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"max_batch":      {MaxBatch: -1},
		"queue_messages": {QueueMessages: 2999},
		"ping_interval":  {PingInterval: -1},
	} {
		_, err := New(cfg, newFakeDispatcher(), fakeAuth{}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}

func TestStopWithoutSessions(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{}, newFakeDispatcher())
	for range 2 {
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_, resp, err := s.dial(dialing{token: "acme"})
	if err == nil {
		t.Fatal("was let in")
	}
	expectError(t, resp, http.StatusServiceUnavailable, "unavailable")
}
