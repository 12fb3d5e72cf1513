package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/pagetest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const (
	protocolPage = "../../docs/node-protocol.md"
	pageNode     = "gpu-7"
	pageSecret   = "fsn_page"
	pageConfig   = 1 // the version of the configuration of pools
	// pagePatience bounds each step of an example.
	pagePatience = waittest.Limit
)

// pageSystem is a gateway on a real Redis, with a token for pageNode.
type pageSystem struct {
	t       *testing.T
	cell    *cell.Cell
	handler *gateway.Handler
	url     string // of HTTP
	vars    pagetest.Variables
	drained chan error
}

func newPageSystem(t *testing.T) *pageSystem {
	t.Helper()
	redis := redistest.Shared(t)
	c, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: redis.Prefix(t)}}, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Start(t.Context()), c.ConfigSeen(t.Context(), pageConfig)); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte(pageSecret))
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	line := fmt.Sprintf("- {name: %s, sha256: %s, nodes: [%s]}\n", pageNode, hex.EncodeToString(digest[:]), pageNode)
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := gateway.OpenTokens(file, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := gateway.New(gateway.Config{
		Replica: "replica-1", Version: "test", HeartbeatLimit: 8 * time.Second, MaxAgents: 10, Tokens: tokens,
		Cells: func(string) gateway.Cell { return c },
	}, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), pagePatience)
		defer cancel()
		if err := errors.Join(handler.Stop(ctx), c.Stop(ctx)); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return &pageSystem{t: t, cell: c, handler: handler, url: server.URL, vars: pagetest.Variables{}}
}

// act carries out a line that begins with #.
func (s *pageSystem) act(text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), pagePatience)
	defer cancel()
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "submit":
		name, spec, _ := strings.Cut(rest, " ")
		job := new(freeslot.Job)
		if err := json.Unmarshal([]byte(spec), job); err != nil {
			s.t.Fatalf("%s: %v; want no error", text, err)
		}
		id := cell.NewJobID(0)
		s.vars[name], s.vars[name+":1"] = id, id+":1"
		sub := cell.Submission{JobID: id, Tenant: "default", Job: job, Candidates: []string{pageNode}, Class: cell.ClassOf(job), ReplyTo: "replica-1"}
		if out := s.cell.EnqueueAll(ctx, []cell.Submission{sub}); out[0].Err != nil {
			s.t.Fatalf("%s: %v; want no error", text, out[0].Err)
		}
		// As replicas do, so that the node's completions hand their slots over.
		if _, err := s.cell.Take(ctx, pageNode, []string{sub.Class.ID}, pageConfig); err != nil {
			s.t.Fatalf("%s: %v; want no error", text, err)
		}
		// A heartbeat of the same millisecond may come before or behind. Redis has this clock.
		written := time.Now().UnixMilli()
		if err := redistest.Await(func(context.Context) bool { return time.Now().UnixMilli() > written }); err != nil {
			s.t.Fatal(err)
		}
	case "cancel":
		id, _ := s.vars[rest].(string)
		if _, err := s.cell.Cancel(ctx, "default", id); err != nil {
			s.t.Fatalf("%s: %v; want no error", text, err)
		}
	case "drain":
		s.drained = make(chan error, 1)
		go func() { s.drained <- s.handler.Drain(context.WithoutCancel(s.t.Context())) }()
	default:
		s.t.Fatalf("no action %q", text)
	}
}

// pageAgent is one of the connections of an example.
type pageAgent struct {
	s       *pageSystem
	conn    *websocket.Conn
	session string // of the welcome
	// rest are the messages of a frame that were not read yet.
	rest   []json.RawMessage
	closed bool
	// answer is of the last request of HTTP.
	answer string
}

func (s *pageSystem) connect() *pageAgent {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), pagePatience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url+frame.Path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + pageSecret}}, Subprotocols: []string{frame.Protocol},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &pageAgent{s: s, conn: conn}
}

// send sends a frame, or a request of HTTP: "POST path body".
func (a *pageAgent) send(text string) {
	a.s.t.Helper()
	text = a.s.vars.Substitute(text)
	if request, ok := strings.CutPrefix(text, "POST "); ok {
		path, body, _ := strings.Cut(request, " ")
		a.answer = a.post(path, body)
		return
	}
	ctx, cancel := context.WithTimeout(a.s.t.Context(), pagePatience)
	defer cancel()
	if err := a.conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		a.s.t.Fatalf("send %s: %v", text, err)
	}
}

// post returns the status and the body.
func (a *pageAgent) post(path, body string) string {
	a.s.t.Helper()
	ctx, cancel := context.WithTimeout(a.s.t.Context(), pagePatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.s.url+path, strings.NewReader(body))
	if err != nil {
		a.s.t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + pageSecret}, frame.NodeHeader: {pageNode}, frame.SessionHeader: {a.session}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.s.t.Fatal(err)
	}
	return strconv.Itoa(resp.StatusCode) + " " + string(text)
}

// read returns the next message, or "close" and the code.
func (a *pageAgent) read() string {
	a.s.t.Helper()
	if a.answer != "" {
		answer := a.answer
		a.answer = ""
		return answer
	}
	for len(a.rest) == 0 {
		ctx, cancel := context.WithTimeout(a.s.t.Context(), pagePatience)
		_, text, err := a.conn.Read(ctx)
		cancel()
		if code := websocket.CloseStatus(err); code != -1 {
			a.closed = true
			return "close " + strconv.Itoa(int(code))
		}
		if err != nil {
			a.s.t.Fatalf("read: %v", err)
		}
		a.rest = []json.RawMessage{text}
		if text[0] == '[' {
			if err := json.Unmarshal(text, &a.rest); err != nil {
				a.s.t.Fatal(err)
			}
		}
	}
	next := a.rest[0]
	a.rest = a.rest[1:]
	var welcome struct{ Type, Session string }
	if json.Unmarshal(next, &welcome) == nil && welcome.Type == string(frame.TypeWelcome) {
		a.session = welcome.Session
	}
	return string(next)
}

// fits compares what came with a line of the page: the words before the JSON, and the JSON.
func fits(vars pagetest.Variables, pattern, got string) error {
	wantHead, want, _ := strings.Cut(pattern, "{")
	haveHead, have, _ := strings.Cut(got, "{")
	if wantHead != haveHead || (want == "") != (have == "") {
		return fmt.Errorf("got %q", got)
	}
	if want == "" {
		return nil
	}
	return vars.Match([]byte("{"+want), []byte("{"+have))
}

// expect reads as many messages of an agent as there are steps, in any order.
func (a *pageAgent) expect(steps []pagetest.Step) {
	a.s.t.Helper()
	for len(steps) > 0 {
		got := a.read()
		found, failures := -1, ""
		for i, step := range steps {
			trial := maps.Clone(a.s.vars)
			err := fits(trial, step.Text, got)
			if err == nil {
				maps.Copy(a.s.vars, trial)
				found = i
				break
			}
			failures += fmt.Sprintf("\nline %d: %v", step.Line, err)
		}
		if found < 0 {
			a.s.t.Fatalf("got %s, which fits nothing:%s", got, failures)
		}
		steps = append(steps[:found:found], steps[found+1:]...)
	}
}

// expectNothing shows that the example has all that the gateway sent.
func (a *pageAgent) expectNothing() {
	a.s.t.Helper()
	if a.closed {
		return
	}
	a.send(`{"type":"spec","id":999,"job_id":"none"}`)
	if got := a.read(); !strings.Contains(got, `"id":999`) {
		a.s.t.Errorf("the agent gets more than the example has: %s", got)
	}
}

func (s *pageSystem) replay(steps []pagetest.Step) {
	s.t.Helper()
	agents := map[string]*pageAgent{}
	for i := 0; i < len(steps); i++ {
		step := steps[i]
		if step.Session == "" {
			s.act(step.Text)
			continue
		}
		agent := agents[step.Session]
		if agent == nil {
			agent = s.connect()
			agents[step.Session] = agent
		}
		if step.Send {
			agent.send(step.Text)
			continue
		}
		group := []pagetest.Step{step}
		for i+1 < len(steps) && steps[i+1].Session == step.Session && !steps[i+1].Send {
			i++
			group = append(group, steps[i])
		}
		agent.expect(group)
	}
	for _, agent := range agents {
		agent.expectNothing()
		_ = agent.conn.CloseNow()
	}
	if s.drained != nil {
		if err := <-s.drained; err != nil {
			s.t.Error(err)
		}
	}
}

// TestProtocolPage replays docs/node-protocol.md. Its examples have all messages of the protocol but
// sync, which nothing asks for yet.
func TestProtocolPage(t *testing.T) {
	t.Parallel()
	examples, err := pagetest.ReadExamples(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{string(frame.TypeSync): true}
	for _, e := range examples {
		for _, step := range e.Steps {
			for _, part := range strings.Split(step.Text, `"type":"`)[1:] {
				name, _, _ := strings.Cut(part, `"`)
				seen[name] = true
			}
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			newPageSystem(t).replay(e.Steps)
		})
	}
	for _, typ := range pagetest.Constants(t, "frame/frame.go", "Type") {
		if !seen[typ] {
			t.Errorf("no example has a message of type %s", typ)
		}
	}
}

// TestOperatorsPage: the tokens file that docs/gateway.md shows is one.
func TestOperatorsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n- {")
	example, _, found := strings.Cut("- {"+example, "```")
	if !found {
		t.Fatal("the page shows no tokens file")
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.OpenTokens(file, zap.NewNop(), nil); err != nil {
		t.Errorf("%v:\n%s; want no error", err, example)
	}
}
