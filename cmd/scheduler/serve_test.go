package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/process/interrupt"
	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// system is one replica and one node that runs "echo", and "block" until release.
type system struct {
	replica *replica.Replica
	metrics *prometheus.Registry
	url     string
	release chan struct{}
	// operator is a token with the right to list nodes; empty without tokens.
	operator string
}

func startSystem(t *testing.T, adapt ...func(*config.Replica)) *system {
	t.Helper()
	redis := redistest.Shared(t)
	cfg := config.DefaultReplica()
	cfg.Listen = "127.0.0.1:0"
	cfg.Redis.URL, cfg.Redis.KeyPrefix = redis.URL(), redis.Prefix(t)
	redis.Age(t, cfg.Redis.KeyPrefix+":version:nodes")
	cfg.DrainTimeout = 10 * time.Second
	for _, a := range adapt {
		a(&cfg)
	}
	reg := metrics.NewRegistry()
	r := replica.New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), reg)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &system{replica: r, metrics: reg, url: "http://" + r.Addr(), release: make(chan struct{})}
	for _, token := range cfg.Tokens {
		if token.Role == identity.Operator {
			s.operator = token.Token
		}
	}
	t.Cleanup(func() { s.stop(t) })
	startNode(t, cfg.Redis, s.release)
	s.await(t, "node-1")
	return s
}

func (s *system) stop(t *testing.T) {
	t.Helper()
	ctx := waittest.Context(t)
	if err := s.replica.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func startNode(t *testing.T, redis config.Redis, release <-chan struct{}) {
	t.Helper()
	w, err := worker.New(worker.Config{
		RedisURL: redis.URL, KeyPrefix: redis.KeyPrefix,
		Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4}, InterruptGrace: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("echo", func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil })
	w.Handle("block", func(ctx context.Context, _ *worker.Job) (any, error) {
		select {
		case <-release:
			return "released", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.Stop(ended)
	})
}

// await asks until the replica knows the node, by a checked read, which brings the cache up to
// date.
func (s *system) await(t *testing.T, node string) {
	t.Helper()
	waittest.Until(t, "node "+node+" to appear", func() bool {
		status, _ := s.call(t, "GET", "/v1/nodes/"+node+"?checked=true", "", "Authorization", "Bearer "+s.operator)
		return status == http.StatusOK
	})
}

func (s *system) call(t *testing.T, method, path, content string, header ...string) (int, map[string]any) {
	t.Helper()
	return call(t, method, s.url+path, content, header...)
}

func call(t *testing.T, method, url, content string, header ...string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(data, &body); err != nil {
		t.Fatalf("%s %s: %s; want no error", method, url, data)
	}
	return resp.StatusCode, body
}

func TestServeJobs(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	status, body := s.call(t, "POST", "/v1/jobs?wait_ms=10000", `{"service":"echo","payload":{"n":1}}`)
	if status != http.StatusOK || body["state"] != "succeeded" || fmt.Sprint(body["result"]) != "map[n:1]" || body["node"] != "node-1" {
		t.Fatalf(`%d %v; want status == http.StatusOK, body["state"] == "succeeded", fmt.Sprint(body["result"]) == "map[n:1]", body["node"] == "node-1"`, status, body)
	}
	status, again := s.call(t, "GET", "/v1/jobs/"+body["job_id"].(string), "")
	if status != http.StatusOK || fmt.Sprint(again) != fmt.Sprint(body) {
		t.Errorf("%d %v, expected what the submit answered: %v", status, again, body)
	}
	status, body = s.call(t, "POST", "/v1/jobs", `{"service":"block"}`)
	if status != http.StatusAccepted || body["state"] != "running" {
		t.Fatalf(`%d %v; want status == http.StatusAccepted, body["state"] == "running"`, status, body)
	}
	status, page := s.call(t, "GET", "/v1/jobs?state=running", "")
	if jobs, _ := page["jobs"].([]any); status != http.StatusOK || len(jobs) != 1 {
		t.Errorf("%d %v; want status == http.StatusOK, len(jobs) == 1", status, page)
	}
	status, body = s.call(t, "POST", "/v1/jobs/"+body["job_id"].(string)+"/cancel", "")
	if status != http.StatusOK || body["state"] != "cancelling" && body["state"] != "cancelled" {
		t.Errorf(`%d %v; want status == http.StatusOK, body["state"] == "cancelling" or body["state"] == "cancelled"`, status, body)
	}
	if status, body = s.call(t, "POST", "/v1/jobs", `{"service":"unknown"}`); status != http.StatusUnprocessableEntity || body["code"] != "no_matching_node" {
		t.Errorf(`%d %v; want status == http.StatusUnprocessableEntity, body["code"] == "no_matching_node"`, status, body)
	}
	if status, body = s.call(t, "POST", "/v1/jobs", `{"service":"echo","slots":5}`); status != http.StatusUnprocessableEntity {
		t.Errorf("%d %v; want status == http.StatusUnprocessableEntity", status, body)
	}
	if status, body = s.call(t, "GET", "/readyz", ""); status != http.StatusOK {
		t.Errorf("%d %v; want status == http.StatusOK", status, body)
	}
}

func TestServeWithTokens(t *testing.T) {
	t.Parallel()
	s := startSystem(t, func(c *config.Replica) {
		c.Tokens = []config.Token{
			{Token: "acme-token", Tenant: "acme", Role: identity.Client},
			{Token: "other-token", Tenant: "other", Role: identity.Client},
			{Token: "root-token", Tenant: "ops", Role: identity.Operator},
		}
	})
	acme := []string{"Authorization", "Bearer acme-token"}
	status, body := s.call(t, "POST", "/v1/jobs?wait_ms=10000", `{"service":"echo"}`, acme...)
	if status != http.StatusOK || body["tenant"] != "acme" {
		t.Fatalf(`%d %v; want status == http.StatusOK, body["tenant"] == "acme"`, status, body)
	}
	if status, body := s.call(t, "GET", "/v1/jobs/"+body["job_id"].(string), "", "Authorization", "Bearer other-token"); status != http.StatusNotFound {
		t.Errorf("another tenant sees the job: %d %v", status, body)
	}
	if status, body := s.call(t, "POST", "/v1/jobs", `{"service":"echo"}`); status != http.StatusUnauthorized {
		t.Errorf("%d %v; want status == http.StatusUnauthorized", status, body)
	}
}

// TestReadinessFollowsRedis: the probe sends no request, but follows within a few refresh
// intervals.
func TestReadinessFollowsRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	cfg := config.DefaultReplica()
	cfg.Listen, cfg.Redis.URL, cfg.DrainTimeout = "127.0.0.1:0", redis.URL(), 10*time.Second
	cfg.Cache.BatchRefreshInterval = 50 * time.Millisecond
	r := replica.New(cfg, zap.NewNop(), metrics.NewRegistry())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &system{replica: r, url: "http://" + r.Addr()}
	defer s.stop(t)
	becomes := func(want int) (body map[string]any) {
		t.Helper()
		status := 0
		waittest.Until(t, fmt.Sprint("readiness to be ", want), func() bool {
			status, body = s.call(t, "GET", "/readyz", "")
			return status == want
		}, func() any { return status })
		return body
	}
	becomes(http.StatusOK)
	redis.Pause()
	if body := fmt.Sprint(becomes(http.StatusServiceUnavailable)); !strings.Contains(body, "Redis has not answered for") {
		t.Error(body)
	}
	if status, body := s.call(t, "GET", "/healthz", ""); status != http.StatusOK {
		t.Errorf("%d %v; want status == http.StatusOK", status, body)
	}
	redis.Resume()
	becomes(http.StatusOK)
}

// TestDrain: a session with an outstanding job gets goaway, a waiting submit is answered, readiness
// turns red, the port closes, and the job goes on.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	conn, _, err := websocket.Dial(t.Context(), s.url+"/v1/ws", &websocket.DialOptions{Subprotocols: []string{"freeslot.v1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"submit","id":"r1","job":{"service":"block"}}`)); err != nil {
		t.Fatal(err)
	}
	jobID := readUntil(t, conn, "assigned")["job_id"].(string)

	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop(t) }()
	readUntil(t, conn, "goaway")
	if status, body := s.call(t, "GET", "/readyz", ""); status != http.StatusServiceUnavailable || body["ready"] != false {
		t.Error("a draining replica is ready:", status, body)
	}
	close(s.release)
	if got := readUntil(t, conn, "result"); got["job"].(map[string]any)["job_id"] != jobID {
		t.Error(got)
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
	waittest.Receive(t, "the end of the replica", stopped)
	if conn, err := net.Dial("tcp", s.replica.Addr()); err == nil {
		_ = conn.Close()
		t.Error("the port is still open")
	}
}

func readUntil(t *testing.T, conn *websocket.Conn, kind string) map[string]any {
	t.Helper()
	ctx := waittest.Context(t)
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("waiting for %s: %v", kind, err)
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		if m["type"] == kind {
			return m
		}
	}
}

// process is the command as a process of its own.
type process struct {
	cmd  *exec.Cmd
	addr string
	logs *bufio.Reader
}

func startProcess(t *testing.T, prefix string, args ...string) *process {
	t.Helper()
	redis := redistest.Shared(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{
		"serve", "--listen", "127.0.0.1:0", "--redis-url", redis.URL(), "--set", "redis.key_prefix=" + prefix,
	}, args...)...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, logs: bufio.NewReader(stderr)}
	p.addr, _ = p.event(t, "replica.started")["address"].(string)
	return p
}

// event reads the log up to an event.
func (p *process) event(t *testing.T, name string) map[string]any {
	t.Helper()
	for {
		line, err := p.logs.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the log ended without %s: %v", name, err)
		}
		var event map[string]any
		if json.Unmarshal(line, &event) == nil && event["event"] == name {
			return event
		}
	}
}

// end reads the rest of the log and returns the exit code.
func (p *process) end(t *testing.T) int {
	t.Helper()
	_, _ = io.Copy(io.Discard, p.logs)
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestFirstSignalStops(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			t.Skipf("%s is ignored where this test runs", sig)
		}
		p := startProcess(t, redistest.Shared(t).Prefix(t))
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		p.event(t, "replica.stopped")
		if code := p.end(t); code != exitOK {
			t.Errorf("%s: exit code is %d, expected 0", sig, code)
		}
	}
}

// TestSecondSignalStopsAtOnce: an endless job would keep the drain busy for half of an hour.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	prefix := redistest.Shared(t).Prefix(t)
	p := startProcess(t, prefix, "--set", "drain_timeout=1h")
	release := make(chan struct{})
	startNode(t, config.Redis{URL: redistest.Shared(t).URL(), KeyPrefix: prefix}, release)
	(&system{url: "http://" + p.addr}).await(t, "node-1")
	conn, _, err := websocket.Dial(t.Context(), "ws://"+p.addr+"/v1/ws", &websocket.DialOptions{Subprotocols: []string{"freeslot.v1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"submit","id":"r1","job":{"service":"block"}}`)); err != nil {
		t.Fatal(err)
	}
	readUntil(t, conn, "assigned")
	for range 2 {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.eventOrEnd("replica.draining")
		time.Sleep(interrupt.Gap) // what comes sooner belongs to the first signal
	}
	if code := p.end(t); code != exitFailure {
		t.Errorf("exit code is %d, expected 1", code)
	}
}

func (p *process) eventOrEnd(name string) {
	for {
		line, err := p.logs.ReadString('\n')
		if err != nil || strings.Contains(line, name) {
			return
		}
	}
}

// TestSignalsThatDoNotCount: SIGHUP and SIGINT that were ignored at the start, as by nohup and by
// shells, do nothing. Signals that come at once are one, as those of GNU timeout. A log that nobody
// reads any more does not end the replica either.
func TestSignalsThatDoNotCount(t *testing.T) {
	t.Parallel()
	p := &process{cmd: exec.Command("sh", "-c", `trap "" HUP INT; exec "$0" "$@"`, os.Args[0], "serve", "--listen", "127.0.0.1:0",
		"--log-level", "debug", "--redis-url", redistest.Shared(t).URL(), "--set", "redis.key_prefix="+redistest.Shared(t).Prefix(t))}
	p.cmd.Env = append(os.Environ(), asMain+"=1")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr, p.cmd.Stdout, p.logs = writer, writer, bufio.NewReader(reader)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	_ = writer.Close()
	p.addr, _ = p.event(t, "replica.started")["address"].(string)
	_ = reader.Close()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGHUP, syscall.SIGINT} {
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // what is refused is logged
		resp, err := http.Post("http://"+p.addr+"/v1/jobs", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	for range 2 {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("%s, expected an orderly end", p.cmd.ProcessState)
	}
}

// TestServeBeforeRedis: a replica that is there before Redis waits, says so once, and then serves.
func TestServeBeforeRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	redis.Kill()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"serve", "--listen", "127.0.0.1:0", "--redis-url", redis.URL(), "--set", "lists.dir=" + t.TempDir()},
			&environment{ctx: ctx, out: &log, err: &log, environ: []string{}})
	}()
	said := func(event string) func() bool {
		return func() bool { return strings.Contains(log.String(), event) }
	}
	waittest.Until(t, "the replica says that it waits", said("replica.connect_failed"))
	redis.Restart()
	waittest.Until(t, "the replica serves", said("replica.started"), func() any { return log.String() })
	stop()
	if code := waittest.Receive(t, "the end of the replica", ended); code != exitOK {
		t.Errorf("exit code %d, expected 0: %s", code, log.String())
	}
	if n := strings.Count(log.String(), `"replica.connect_failed"`); n != 1 {
		t.Errorf("it said %d times that it waits, expected once: %s", n, log.String())
	}
}
