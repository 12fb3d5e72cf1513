package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const testLimit = 8 * time.Second

// server is a gateway whose connections are pipes, so that its time is that of the test's bubble.
type server struct {
	*Handler
	t      *testing.T
	cell   *fakeCell
	reg    *prometheus.Registry
	pipes  *pipes
	tokens string // the file
	client *http.Client
	pings  atomic.Int64 // that agents got
	dialed int          // by connect
}

// inBubble runs a test with a gateway in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, serve(t, 100)) })
}

// serve starts a gateway that is stopped at the end of the test. The secret of each token is its name.
func serve(t *testing.T, maxAgents int) *server {
	t.Helper()
	s := &server{t: t, cell: newFakeCell(), reg: prometheus.NewRegistry(), tokens: filepath.Join(t.TempDir(), "tokens.yaml")}
	s.writeTokens("{name: gpu, nodes: [gpu-*]}", "{name: two, nodes: [gpu-1], slots: 2}", "{name: more, nodes: [more-*]}")
	tokens, err := OpenTokens(s.tokens, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tokens.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Handler, err = New(Config{
		Replica: "r-1", Version: "v1", HeartbeatLimit: testLimit, MaxAgents: maxAgents,
		Cells: func(string) Cell { return s.cell }, Tokens: tokens,
	}, zap.NewNop(), s.reg)
	if err != nil {
		t.Fatal(err)
	}
	s.pipes = &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	transport := &http.Transport{DialContext: s.pipes.dial}
	s.client = &http.Client{Transport: transport}
	web := &http.Server{Handler: s.Handler}
	var served sync.WaitGroup
	served.Go(func() { _ = web.Serve(s.pipes) }) // ends with Close
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(s.Stop(ctx), tokens.Stop(ctx)); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		_ = web.Close()
		served.Wait()
	})
	return s
}

// writeTokens writes the lines, with the digest of each name as its secret's.
func (s *server) writeTokens(lines ...string) {
	s.t.Helper()
	var text strings.Builder
	for _, line := range lines {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "{name: "), ",")
		digest := sha256.Sum256([]byte(name))
		fmt.Fprintf(&text, "- %s, sha256: %s}\n", strings.TrimSuffix(line, "}"), hex.EncodeToString(digest[:]))
	}
	if text.Len() == 0 {
		text.WriteString("[]\n")
	}
	if err := os.WriteFile(s.tokens, []byte(text.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
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

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// peer is the agent's end of a session.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
	// rest are the messages of an array that were not read yet.
	rest          []json.RawMessage
	node, session string
}

// dial connects without a hello. silent: it answers no ping.
func (s *server) dial(token string, silent bool) *peer {
	s.t.Helper()
	conn, _, err := websocket.Dial(s.t.Context(), "ws://gateway"+frame.Path, &websocket.DialOptions{
		HTTPClient: s.client, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{frame.Protocol},
		OnPingReceived: func(context.Context, []byte) bool { s.pings.Add(1); return !silent },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetReadLimit(8 << 20)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &peer{t: s.t, conn: conn}
}

// connect dials as a node of its own, the first time as gpu-1, and takes the welcome.
func (s *server) connect() *peer {
	s.t.Helper()
	s.dialed++
	return s.connectAs("gpu", fmt.Sprint("gpu-", s.dialed), 1)
}

func (s *server) connectAs(token, node string, connection int) *peer {
	s.t.Helper()
	p := s.hello(token, node, "e1", connection)
	p.welcomed()
	return p
}

// hello dials and says hello.
func (s *server) hello(token, node, epoch string, connection int) *peer {
	s.t.Helper()
	p := s.dial(token, false)
	p.node = node
	p.send(fmt.Sprintf(`{"type":"hello","node":"%s","epoch":"%s","connection":%d,"version":"0.4"}`, node, epoch, connection))
	return p
}

func (p *peer) welcomed() {
	p.t.Helper()
	var answer frame.Answer
	if err := json.Unmarshal(p.read(), &answer); err != nil || answer.Type != frame.TypeWelcome || answer.Welcome == nil {
		p.t.Fatalf("no welcome: %+v, error %v", answer, err)
	}
	p.session = answer.Session
}

// brought are entries of the gateway's stream for the session.
func (p *peer) brought(found ...cell.Dispatch) []cell.GatewayDispatch {
	out := make([]cell.GatewayDispatch, len(found))
	for i := range found {
		out[i] = cell.GatewayDispatch{Dispatch: found[i], Node: cmp.Or(p.node, "gpu-1"), Session: p.session}
	}
	return out
}

func (p *peer) send(text string) {
	p.t.Helper()
	p.write(websocket.MessageText, text)
}

func (p *peer) write(typ websocket.MessageType, text string) {
	p.t.Helper()
	if err := p.conn.Write(p.t.Context(), typ, []byte(text)); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// read returns the next message, which may be part of an array.
func (p *peer) read() []byte {
	p.t.Helper()
	for len(p.rest) == 0 {
		_, text, err := p.conn.Read(p.t.Context())
		if err != nil {
			p.t.Fatalf("read: %v", err)
		}
		p.rest = []json.RawMessage{text}
		if text[0] == '[' {
			if err := json.Unmarshal(text, &p.rest); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	next := p.rest[0]
	p.rest = p.rest[1:]
	return next
}

// expect reads one message. In want, "…" is any text.
func (p *peer) expect(want string) {
	p.t.Helper()
	if got := string(p.read()); !like(want, got) {
		p.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func like(want, got string) bool {
	parts := strings.Split(want, "…")
	if !strings.HasPrefix(got, parts[0]) {
		return false
	}
	got = got[len(parts[0]):]
	for i, part := range parts[1:] {
		at := strings.Index(got, part)
		if i == len(parts)-2 {
			at = strings.LastIndex(got, part)
		}
		if at < 0 {
			return false
		}
		got = got[at+len(part):]
	}
	return got == ""
}

// ends reads on until the connection ends, and checks how.
func (p *peer) ends(code websocket.StatusCode) {
	p.t.Helper()
	for {
		_, text, err := p.conn.Read(p.t.Context())
		if err == nil {
			p.t.Logf("before the end: %.200s", text)
			continue
		}
		if got := websocket.CloseStatus(err); got != code {
			p.t.Fatalf("closed with %v, want %d", err, code)
		}
		return
	}
}

// fakeCell answers as a cell that knows nothing. Tests replace its functions before they connect.
type fakeCell struct {
	link       func() (cell.NodeLink, error)
	nodes      func(ids []string) (cell.Changes, error)
	register   func(freeslot.Node, cell.Epoch, cell.Link, cell.Epoch) (cell.Registration, error)
	heartbeat  func(context.Context, cell.Heartbeat, cell.Link) (cell.HeartbeatReply, error)
	spec       func(node, epoch, jobID string) (*freeslot.Job, string, error)
	deregister func(node, epoch string) ([]string, error)
	complete   func(context.Context, cell.Completion) (cell.CompletionOutcome, error)
	shared     func(context.Context, []cell.Completion) ([]cell.SharedOutcome, error)
	progress   func(node, epoch string, reports []cell.ProgressReport) ([]cell.ProgressOutcome, error)

	// stream brings what a read finds, reads the positions that were asked for.
	stream chan []cell.GatewayDispatch
	reads  chan string
	// open and keep are called with the position up to which the stream is trimmed.
	open, keep func(trimTo string) error
	closed     atomic.Int32
}

var _ Cell = (*cell.Cell)(nil)

func newFakeCell() *fakeCell {
	return &fakeCell{
		link:  func() (cell.NodeLink, error) { return cell.NodeLink{}, nil },
		nodes: func([]string) (cell.Changes, error) { return cell.Changes{}, nil },
		register: func(freeslot.Node, cell.Epoch, cell.Link, cell.Epoch) (cell.Registration, error) {
			return cell.Registration{}, nil
		},
		heartbeat: func(context.Context, cell.Heartbeat, cell.Link) (cell.HeartbeatReply, error) {
			return cell.HeartbeatReply{AtMS: 100}, nil
		},
		spec: func(string, string, string) (*freeslot.Job, string, error) {
			return nil, "", &freeslot.Error{Code: freeslot.CodeNotFound, Field: "job_id", Message: "none"}
		},
		deregister: func(string, string) ([]string, error) { return nil, nil },
		complete: func(context.Context, cell.Completion) (cell.CompletionOutcome, error) {
			return cell.CompletedStale, nil
		},
		shared: func(_ context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
			return make([]cell.SharedOutcome, len(comps)), nil
		},
		progress: func(_, _ string, reports []cell.ProgressReport) ([]cell.ProgressOutcome, error) {
			return make([]cell.ProgressOutcome, len(reports)), nil
		},
		stream: make(chan []cell.GatewayDispatch), reads: make(chan string, 1000),
		open: func(string) error { return nil }, keep: func(string) error { return nil },
	}
}

func (f *fakeCell) Link(context.Context, string) (cell.NodeLink, error) { return f.link() }

func (f *fakeCell) Nodes(_ context.Context, ids []string) (cell.Changes, error) { return f.nodes(ids) }

func (f *fakeCell) RegisterLinked(_ context.Context, n freeslot.Node, e cell.Epoch, l cell.Link, replaces cell.Epoch) (cell.Registration, error) {
	return f.register(n, e, l, replaces)
}

func (f *fakeCell) HeartbeatsLinked(ctx context.Context, beats []cell.LinkedHeartbeat) []cell.HeartbeatResult {
	out := make([]cell.HeartbeatResult, len(beats))
	for i, hb := range beats {
		out[i].HeartbeatReply, out[i].Err = f.heartbeat(ctx, hb.Heartbeat, hb.Link)
	}
	return out
}

func (f *fakeCell) OwnedSpec(_ context.Context, node string, e cell.Epoch, jobID string) (*freeslot.Job, string, error) {
	return f.spec(node, e, jobID)
}

func (f *fakeCell) Deregister(_ context.Context, node string, e cell.Epoch) ([]string, error) {
	return f.deregister(node, e)
}

func (f *fakeCell) Complete(ctx context.Context, c cell.Completion) (cell.CompletionOutcome, error) {
	return f.complete(ctx, c)
}

func (f *fakeCell) CompleteNode(ctx context.Context, comps []cell.Completion) []cell.CompletionResult {
	out := make([]cell.CompletionResult, len(comps))
	for i := range comps {
		out[i].Outcome, out[i].Err = f.complete(ctx, comps[i])
	}
	return out
}

func (f *fakeCell) CompleteNodes(ctx context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
	return f.shared(ctx, comps)
}

func (f *fakeCell) Progress(_ context.Context, node string, e cell.Epoch, reports []cell.ProgressReport) ([]cell.ProgressOutcome, error) {
	return f.progress(node, e, reports)
}

func (f *fakeCell) OpenGateway(context.Context, string) error { return f.open("") }

func (f *fakeCell) KeepGateway(_ context.Context, _, trimTo string) error { return f.keep(trimTo) }

func (f *fakeCell) CloseGateway(context.Context, string) error {
	f.closed.Add(1)
	return nil
}

func (f *fakeCell) GatewayDispatches(ctx context.Context, _, after string, block time.Duration, _ int) ([]cell.GatewayDispatch, error) {
	f.reads <- after
	timer := time.NewTimer(block)
	defer timer.Stop()
	select {
	case found := <-f.stream:
		return found, nil
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
