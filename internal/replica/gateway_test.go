package replica

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// gated is a replica with a gateway. Each secret is its token's name.
type gated struct {
	*Replica
	tokens string // the file
	cfg    config.Replica
}

func (g *gated) writeTokens(t *testing.T, lines ...string) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# tokens\n")
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		digest := sha256.Sum256([]byte(name))
		fmt.Fprintf(&text, "- {name: %s, sha256: %s, %s}\n", name, hex.EncodeToString(digest[:]), rest)
	}
	if err := os.WriteFile(g.tokens, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startGated starts a replica with the tokens gpu-1 and gpu-2 for these nodes, and with those of a
// client and an operator.
func startGated(t *testing.T, set func(*config.Replica)) *gated {
	t.Helper()
	g := &gated{tokens: filepath.Join(t.TempDir(), "tokens.yaml"), cfg: configured(t)}
	g.writeTokens(t, "gpu-1 nodes: [gpu-1], services: [tts]", "gpu-2 nodes: [gpu-2]")
	g.cfg.ReplicaID, g.cfg.Gateway.TokensFile, g.cfg.Lists.Dir = "r1", g.tokens, t.TempDir()
	g.cfg.Tokens = []config.Token{{Token: "client", Tenant: "acme", Role: identity.Client}, {Token: "operator", Tenant: "acme", Role: identity.Operator}}
	if set != nil {
		set(&g.cfg)
	}
	g.Replica = New(g.cfg, zap.NewNop(), prometheus.NewRegistry())
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return g
}

// agent is a node's end of a session.
type agent struct {
	t       *testing.T
	conn    *websocket.Conn
	id      uint64
	welcome frame.Answer
	// pushed is what came before the answers that were waited for.
	pushed []frame.Answer
}

func (g *gated) dial(t *testing.T, token string) (*agent, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, "ws://"+g.GatewayAddr()+frame.Path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{frame.Protocol},
	})
	if err != nil {
		return nil, resp, err
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &agent{t: t, conn: conn}, resp, nil
}

// connect says hello as a node.
func (g *gated) connect(t *testing.T, node string) *agent {
	t.Helper()
	a, _, err := g.dial(t, node)
	if err != nil {
		t.Fatal(err)
	}
	a.send(&frame.Request{Type: frame.TypeHello, Node: node, Epoch: "e-" + node, Connection: 1, Version: "0.4.0"})
	a.welcome = *a.read()
	if a.welcome.Type != frame.TypeWelcome {
		t.Fatalf("hello is answered with %+v", a.welcome)
	}
	return a
}

// work registers the node and has it take jobs, once the replica knows it.
func (g *gated) work(a *agent, node string) {
	a.t.Helper()
	a.ask(&frame.Request{Type: frame.TypeRegister, Profile: &freeslot.Node{MaxConcurrency: 2, Services: []freeslot.Service{{Name: "tts"}}}}, frame.TypeRegistered)
	a.ask(&frame.Request{Type: frame.TypeHeartbeat, Status: freeslot.StatusOnline, Now: true}, frame.TypeBeat)
	waittest.Until(a.t, "the replica to know "+node, func() bool {
		status, _ := g.call(a.t, "GET", "/v1/nodes/"+node, "operator", "")
		return status == http.StatusOK
	})
}

func (a *agent) send(req *frame.Request) {
	a.t.Helper()
	text, err := frame.Append(nil, req)
	if err == nil {
		err = a.conn.Write(a.t.Context(), websocket.MessageText, text)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) read() *frame.Answer {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), waittest.Limit)
	defer cancel()
	_, text, err := a.conn.Read(ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	var all []*frame.Answer
	if err := frame.DecodeAnswers(text, func(one *frame.Answer) error { all = append(all, one); return nil }); err != nil || len(all) == 0 {
		a.t.Fatalf("%s: %v; want no error, len(all) != 0", text, err)
	}
	for _, more := range all[1:] {
		a.pushed = append(a.pushed, *more)
	}
	return all[0]
}

// ask sends a request and waits for its answer, which must be of the type.
func (a *agent) ask(req *frame.Request, want frame.Type) *frame.Answer {
	a.t.Helper()
	a.id++
	req.ID = a.id
	a.send(req)
	for {
		got := a.read()
		if got.ID != a.id {
			a.pushed = append(a.pushed, *got)
			continue
		}
		if got.Type != want {
			a.t.Fatalf("%s is answered with %s %s: %s", req.Type, got.Type, got.Code, got.Message)
		}
		return got
	}
}

// delivery waits for the next job.
func (a *agent) delivery() frame.Delivery {
	a.t.Helper()
	for {
		for i, got := range a.pushed {
			if got.Type == frame.TypeJobs {
				a.pushed = append(a.pushed[:i:i], a.pushed[i+1:]...)
				return got.Jobs[0]
			}
		}
		a.pushed = append(a.pushed, *a.read())
	}
}

// ends reads on until the connection ends, and is the close code.
func (a *agent) ends() websocket.StatusCode {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), waittest.Limit)
	defer cancel()
	for {
		if _, _, err := a.conn.Read(ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// call is the status and the answer of a request by HTTP.
func (g *gated) call(t *testing.T, method, path, token, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waittest.Limit}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestGateway: a node that has no Redis runs a job, and operators see by whom it is connected.
func TestGateway(t *testing.T) {
	t.Parallel()
	g := startGated(t, nil)
	a := g.connect(t, "gpu-1")
	g.work(a, "gpu-1")
	type answer struct {
		status int
		text   string
	}
	waited := make(chan answer, 1)
	go func() {
		status, text := g.call(t, "POST", "/v1/jobs?wait_ms=15000", "client", `{"service":"tts","payload":{"say":"hi"}}`, "Content-Type", "application/json")
		waited <- answer{status, text}
	}()
	job := a.delivery()
	if job.Tenant != "acme" || job.Job == nil || string(job.Job.Payload) != `{"say":"hi"}` {
		t.Errorf("delivery %+v", job)
	}
	got := a.ask(&frame.Request{Type: frame.TypeComplete, Attempt: &job.Attempt, State: freeslot.StateSucceeded, Result: json.RawMessage(`"said"`)}, frame.TypeCompleted)
	if got.Outcome != "completed" {
		t.Errorf("outcome %s", got.Outcome)
	}
	if end := <-waited; end.status != http.StatusOK || !strings.Contains(end.text, `"said"`) {
		t.Errorf("the client got %d %s", end.status, end.text)
	}
	if status, text := g.call(t, "GET", "/v1/nodes/gpu-1", "operator", ""); status != http.StatusOK ||
		!strings.Contains(text, `"connection":{"replica":"r1",`) || !strings.Contains(text, `"version":"0.4.0","token":"gpu-1"}`) {
		t.Errorf("the operator sees %d %s", status, text)
	}
}

// TestDoors: a node's token opens /v1/node alone, and no other token opens it.
func TestDoors(t *testing.T) {
	t.Parallel()
	g := startGated(t, nil)
	data, err := os.ReadFile("../api/testdata/routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true, "/openapi.json": true, "/openapi.yaml": true}
	routes := 0
	for lines := bufio.NewScanner(strings.NewReader(string(data))); lines.Scan(); {
		path, methods, _ := strings.Cut(lines.Text(), "  ")
		if path == "/v1/ws" {
			methods = "GET"
		}
		for method := range strings.SplitSeq(methods, ", ") {
			routes++
			var header []string
			if path == "/v1/ws" {
				header = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
			}
			at := strings.NewReplacer("{", "", "}", "").Replace(path)
			status, _ := g.call(t, method, at, "gpu-1", "", header...)
			if anyone, _ := g.call(t, method, at, "", "", header...); status != anyone || (status == http.StatusUnauthorized) == open[path] {
				t.Errorf("%s %s answers %d to a node's token, and %d to nobody's", method, path, status, anyone)
			}
		}
	}
	if routes < 100 {
		t.Errorf("only %d routes were tried", routes)
	}
	for _, token := range []string{"client", "operator", "", "gpu-3"} {
		if _, resp, err := g.dial(t, token); err == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the token %q opens a session: %v", token, err)
		}
		for _, path := range []string{frame.Path, frame.CompletePath, frame.SpecPath} {
			if path == frame.Path {
				continue // asked above; without an upgrade it tells what it is
			}
			if status, text := g.call(t, "POST", path, token, "{}", frame.NodeHeader, "gpu-1", frame.SessionHeader, "s"); status != http.StatusUnauthorized {
				t.Errorf("%s answers %d %s to the token %q", path, status, text, token)
			}
		}
	}
	// The same secret for two doors.
	g.cfg.Tokens[0].Token, g.cfg.Redis.KeyPrefix = "gpu-2", redistest.Shared(t).Prefix(t)
	err = New(g.cfg, zap.NewNop(), prometheus.NewRegistry()).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "gateway.tokens_file "+g.tokens+": line 3: the token gpu-2 also opens another door") {
		t.Errorf("start with one token in both files: %v", err)
	}
}

// TestRightsOfANode has a token for gpu-1 try everything else.
func TestRightsOfANode(t *testing.T) {
	t.Parallel()
	g := startGated(t, nil)
	victim := g.connect(t, "gpu-2")
	g.work(victim, "gpu-2")
	status, text := g.call(t, "POST", "/v1/jobs", "client", `{"service":"tts","payload":"secret"}`, "Content-Type", "application/json")
	if status != http.StatusAccepted {
		t.Fatalf("submit: %d %s", status, text)
	}
	job := victim.delivery()
	before := dump(t, g)

	a := g.connect(t, "gpu-1")
	g.work(a, "gpu-1")
	wrong := job.Attempt
	if got := a.ask(&frame.Request{Type: frame.TypeComplete, Attempt: &wrong, State: freeslot.StateSucceeded}, frame.TypeCompleted); got.Outcome != "stale" {
		t.Errorf("the end of another node's job is %s", got.Outcome)
	}
	if got := a.ask(&frame.Request{Type: frame.TypeProgress, Reports: []frame.Report{{Attempt: wrong, Seq: 1, Value: json.RawMessage("1")}}}, frame.TypeProgressed); got.Outcomes[0] != "stale" {
		t.Errorf("progress of another node's job is %s", got.Outcomes)
	}
	if got := a.ask(&frame.Request{Type: frame.TypeSpec, JobID: wrong.Job}, frame.TypeError); got.Code != freeslot.CodeNotFound {
		t.Errorf("the spec of another node's job: %s %s", got.Code, got.Message)
	}
	if got := a.ask(&frame.Request{Type: frame.TypeHeartbeat, Status: freeslot.StatusOnline, Running: []frame.Attempt{wrong}, Now: true}, frame.TypeBeat); len(got.Start) > 0 || len(got.Stop) != 1 {
		t.Errorf("a heartbeat that names another node's job: %+v", got)
	}
	for name, profile := range map[string]freeslot.Node{
		"service": {MaxConcurrency: 1, Services: []freeslot.Service{{Name: "llm"}}},
		"slots":   {MaxConcurrency: frame.MaxSlots + 1},
	} {
		if got := a.ask(&frame.Request{Type: frame.TypeRegister, Profile: &profile}, frame.TypeError); got.Code != freeslot.CodePermissionDenied && got.Code != freeslot.CodeInvalidArgument {
			t.Errorf("a profile with another %s: %s %s", name, got.Code, got.Message)
		}
	}
	// The session's node counts, whatever the profile says.
	a.ask(&frame.Request{Type: frame.TypeRegister, Profile: &freeslot.Node{ID: "gpu-2", MaxConcurrency: 1}}, frame.TypeRegistered)
	spec := `{"type":"spec","job_id":"` + wrong.Job + `"}`
	end := `{"type":"complete","attempt":"` + wrong.String() + `","state":"succeeded"}`
	for name, c := range map[string]struct {
		path, node, session, body string
		status                    int
	}{
		"spec by HTTP":                    {frame.SpecPath, "gpu-1", a.welcome.Session, spec, http.StatusNotFound},
		"spec as the other node":          {frame.SpecPath, "gpu-2", victim.welcome.Session, spec, http.StatusForbidden},
		"spec in the other's session":     {frame.SpecPath, "gpu-1", victim.welcome.Session, spec, http.StatusConflict},
		"end as the other node":           {frame.CompletePath, "gpu-2", victim.welcome.Session, end, http.StatusForbidden},
		"end in the other's session":      {frame.CompletePath, "gpu-1", victim.welcome.Session, end, http.StatusConflict},
		"end as the other, own session":   {frame.CompletePath, "gpu-2", a.welcome.Session, end, http.StatusForbidden},
		"end of the other's job by HTTP":  {frame.CompletePath, "gpu-1", a.welcome.Session, end, http.StatusOK}, // stale, see below
		"register by HTTP, which is none": {frame.Path + "/register", "gpu-1", a.welcome.Session, "{}", http.StatusNotFound},
	} {
		status, text := g.call(t, "POST", c.path, "gpu-1", c.body, frame.NodeHeader, c.node, frame.SessionHeader, c.session)
		if status != c.status || status == http.StatusOK && !strings.Contains(text, `"outcome":"stale"`) {
			t.Errorf("%s: %d %s, want %d", name, status, text, c.status)
		}
	}
	other, _, err := g.dial(t, "gpu-1")
	if err != nil {
		t.Fatal(err)
	}
	other.send(&frame.Request{Type: frame.TypeHello, Node: "gpu-2", Epoch: "e9", Connection: 1})
	if code := other.ends(); code != frame.CloseRights {
		t.Errorf("hello as another node ends with %d", code)
	}
	if got := a.ask(&frame.Request{Type: frame.TypeDeregister}, frame.TypeDeregistered); len(got.Lost) > 0 {
		t.Errorf("deregister lost %s", got.Lost)
	}
	after := dump(t, g)
	for key, value := range before {
		if after[key] != value {
			t.Errorf("%s was changed from %q to %q", key, value, after[key])
		}
	}
	// The victim goes on.
	if got := victim.ask(&frame.Request{Type: frame.TypeComplete, Attempt: &job.Attempt, State: freeslot.StateSucceeded}, frame.TypeCompleted); got.Outcome != "completed" {
		t.Errorf("the owner's report is %s", got.Outcome)
	}
}

// dump is what Redis has of the node gpu-2 and its job.
func dump(t *testing.T, g *gated) map[string]string {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	all := make(map[string]string)
	prefix := g.cfg.Redis.KeyPrefix
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern(prefix+":*").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if !strings.HasSuffix(key, ":gpu-2") && !strings.HasPrefix(key, prefix+":jobs:") {
			continue
		}
		if all[key], err = client.Do(t.Context(), client.B().Dump().Key(key).Build()).ToString(); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 4 {
		t.Fatalf("only the keys %s are compared", keys)
	}
	return all
}

// TestTokenRemoved: the session of a removed line ends, and no other does.
func TestTokenRemoved(t *testing.T) {
	t.Parallel()
	g := startGated(t, nil)
	removed, stays := g.connect(t, "gpu-1"), g.connect(t, "gpu-2")
	g.writeTokens(t, "gpu-2 nodes: [gpu-2]", "gpu-3 nodes: [gpu-3]")
	if code := removed.ends(); code != frame.CloseRights {
		t.Errorf("the session ends with %d", code)
	}
	if _, resp, err := g.dial(t, "gpu-1"); err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the removed token opens a session: %v", err)
	}
	g.work(stays, "gpu-2")
	g.connect(t, "gpu-3")
}

// TestGatewayListener: agents have a listener of their own, and the other one is none of theirs.
func TestGatewayListener(t *testing.T) {
	t.Parallel()
	g := startGated(t, func(cfg *config.Replica) { cfg.Gateway.Listen = "127.0.0.1:0" })
	if g.GatewayAddr() == g.Addr() {
		t.Fatal("both listeners are one")
	}
	g.work(g.connect(t, "gpu-1"), "gpu-1")
	if status, _ := g.call(t, "GET", frame.Path, "gpu-1", ""); status != http.StatusNotFound {
		t.Errorf("the main listener answers %d at %s", status, frame.Path)
	}
	resp, err := http.Get("http://" + g.GatewayAddr() + "/v1/jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("the agents' listener answers %d at /v1/jobs", resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := g.cfg
	cfg.Redis.KeyPrefix, cfg.Gateway.Listen = redistest.Shared(t).Prefix(t), taken.Addr().String()
	if err := New(cfg, zap.NewNop(), prometheus.NewRegistry()).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "gateway.listen "+cfg.Gateway.Listen) {
		t.Errorf("start with a taken port: %v", err)
	}
	cfg.Gateway.Listen, cfg.Listen = "127.0.0.1:0", taken.Addr().String()
	if err := New(cfg, zap.NewNop(), prometheus.NewRegistry()).Start(t.Context()); err == nil {
		t.Error("no error although the main port is taken")
	}
}

// TestGatewayDrain: agents are asked to go before the replica ends.
func TestGatewayDrain(t *testing.T) {
	t.Parallel()
	g := startGated(t, nil)
	a := g.connect(t, "gpu-1")
	g.work(a, "gpu-1")
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		stopped <- g.Stop(ctx)
	}()
	for got := a.read(); got.Type != frame.TypeGoaway; got = a.read() {
		t.Logf("before the goaway: %s", got.Type)
	}
	if err := a.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestNoGateway: without a tokens file there is nothing at its paths.
func TestNoGateway(t *testing.T) {
	t.Parallel()
	g := startGated(t, func(cfg *config.Replica) { cfg.Gateway.TokensFile = "" })
	if g.GatewayAddr() != "" {
		t.Errorf("the gateway is at %s", g.GatewayAddr())
	}
	for _, path := range []string{frame.Path, frame.CompletePath} {
		if status, _ := g.call(t, "GET", path, "gpu-1", ""); status != http.StatusNotFound {
			t.Errorf("%s answers %d", path, status)
		}
	}
}
