package session

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/testing/pagetest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

// patience bounds every wait of a test. Only a failure reaches it.
const patience = waittest.Limit

type server struct {
	*Handler
	t   *testing.T
	url string
	reg *prometheus.Registry
}

// serve starts a handler that is stopped at the end of the test.
func serve(t *testing.T, cfg Config, d Dispatcher) *server {
	t.Helper()
	cfg.Replica, cfg.Version = "replica-1", "test"
	// What a test does not shorten must not run out on a busy machine.
	cfg.PingTimeout, cfg.WriteTimeout = cmp.Or(cfg.PingTimeout, time.Hour), cmp.Or(cfg.WriteTimeout, time.Hour)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, time.Hour)
	reg := prometheus.NewRegistry()
	h, err := New(cfg, d, fakeAuth{}, zap.NewNop(), reg)
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := h.Stop(ctx); err != nil {
			t.Error(err)
		}
		listener.Close()
	})
	return &server{Handler: h, t: t, reg: reg, url: "ws" + strings.TrimPrefix(listener.URL, "http")}
}

// metric is the value of a counter or gauge, by its name and label values.
func (s *server) metric(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			matches := len(m.GetLabel()) == len(labels)
			for i := range labels {
				matches = matches && m.GetLabel()[i].GetValue() == labels[i]
			}
			if matches {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// peer is the other end of a session.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
	vars pagetest.Variables
	// rest are the messages of an array that were not read yet.
	rest []json.RawMessage
}

type dialing struct {
	token, query, origin string
	protocols            []string
}

func (s *server) dial(d dialing) (*peer, *http.Response, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	header := http.Header{}
	if d.token != "" {
		header.Set("Authorization", "Bearer "+d.token)
	}
	if d.origin != "" {
		header.Set("Origin", d.origin)
	}
	conn, resp, err := websocket.Dial(ctx, s.url+"/v1/ws"+d.query, &websocket.DialOptions{HTTPHeader: header, Subprotocols: d.protocols})
	if err != nil {
		return nil, resp, err
	}
	conn.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &peer{t: s.t, conn: conn, vars: pagetest.Variables{}}, resp, nil
}

// connect dials as tenant acme and takes the welcome.
func (s *server) connect(query string) *peer {
	s.t.Helper()
	p, _, err := s.dial(dialing{token: "acme", query: query, protocols: []string{wire.Protocol}})
	if err != nil {
		s.t.Fatal(err)
	}
	p.expect(`{"type":"welcome","protocol":"freeslot.v1","session_id":"…session","replica":"replica-1","version":"test",` +
		`"max_payload_bytes":"…","max_batch":"…","max_frame_bytes":"…"}`)
	return p
}

func (p *peer) send(frame string) {
	p.t.Helper()
	p.write(websocket.MessageText, []byte(p.vars.Substitute(frame)))
}

func (p *peer) write(typ websocket.MessageType, frame []byte) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := p.conn.Write(ctx, typ, frame); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// read returns the next message, which may be part of an array.
func (p *peer) read() []byte {
	p.t.Helper()
	if len(p.rest) == 0 {
		p.rest = []json.RawMessage{p.readFrame()}
		if p.rest[0][0] == '[' {
			if err := json.Unmarshal(p.rest[0], &p.rest); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	next := p.rest[0]
	p.rest = p.rest[1:]
	return next
}

func (p *peer) readFrame() []byte {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	typ, frame, err := p.conn.Read(ctx)
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	if typ != websocket.MessageText {
		p.t.Fatalf("got a %v frame", typ)
	}
	return frame
}

// expect reads one message and matches it with a pattern; see pagetest.Variables.
func (p *peer) expect(pattern string) {
	p.t.Helper()
	got := p.read()
	if err := p.vars.Match([]byte(pattern), got); err != nil {
		p.t.Fatalf("%v\ngot  %s\nwant %s", err, got, pattern)
	}
}

// expectClose reads on until the connection ends, and checks how it ends.
func (p *peer) expectClose(code websocket.StatusCode) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	for {
		_, frame, err := p.conn.Read(ctx)
		if err == nil {
			p.t.Logf("before the end: %.200s", frame)
			continue
		}
		if got := websocket.CloseStatus(err); got != code {
			p.t.Fatalf("closed with %v, want %v", err, code)
		}
		return
	}
}

// expectError checks the JSON body of a refused handshake.
func expectError(t *testing.T, resp *http.Response, status int, code string) {
	t.Helper()
	if resp == nil {
		t.Fatal("no response")
	}
	var body struct{ Code, Message string }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatalf("status %s, body: %v", resp.Status, err)
	}
	if resp.StatusCode != status || body.Code != code || body.Message == "" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("status %s, body %+v, want %d and code %s", resp.Status, body, status, code)
	}
}

// waitFor receives from c, or fails.
func waitFor[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	return waittest.Receive(t, what, c)
}

var _ Dispatcher = (*dispatch.Dispatcher)(nil)
