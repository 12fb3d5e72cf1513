package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
)

func TestSubmitAndWait(t *testing.T) {
	t.Parallel()
	l := start(t)
	if got := l.ctl(t, "submit", "echo", `{"hello": "world"}`, "--wait").expect(t, exitOK); got.out != `{"hello":"world"}`+"\n" && got.out != `{"hello": "world"}`+"\n" {
		t.Errorf("output is %q, expected the result alone", got.out)
	}
	if got := command(t, "\"from stdin\"\n", "--server", l.server.Addr(), "submit", "echo", "-", "-w").expect(t, exitOK); got.out != "\"from stdin\"\n" {
		t.Error(got.out)
	}
	file := filepath.Join(t.TempDir(), "payload.json")
	must(t, os.WriteFile(file, []byte("[1,\n2]"), 0o600))
	l.ctl(t, "submit", "echo", "--file", file, "--wait").expect(t, exitOK, "[1,")
	l.ctl(t, "submit", "echo", "--wait").expect(t, exitOK, "null")

	got := l.ctl(t, "submit", "echo", "1", "--wait", "-o", "json",
		"--source", "en", "--target", "de-AT", "--label", "gpu=a100", "--label", "zone=eu", "--also-service", "fail", "--slots", "2").expect(t, exitOK)
	var status freeslot.JobStatus
	if err := json.Unmarshal([]byte(got.out), &status); err != nil || status.State != freeslot.StateSucceeded || status.Slots != 2 {
		t.Errorf("%v %s; want no error, status.State == freeslot.StateSucceeded, status.Slots == 2", err, got.out)
	}
	failed := l.ctl(t, "submit", "fail", "--wait").expect(t, exitFailure, "failed on node node-1: handler_error: no")
	if failed.out != "" || strings.Contains(failed.err, "\x1b") {
		t.Errorf(`%q %q; want failed.out == "", not strings.Contains(failed.err, "\x1b")`, failed.out, failed.err)
	}
	l.ctl(t, "submit", "fail", "--wait", "-o", "json").expect(t, exitFailure, `"state": "failed"`, `"code": "handler_error"`)
}

func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	l := start(t)
	id := strings.TrimSpace(l.ctl(t, "submit", "block").expect(t, exitOK).out)
	soon(t, l.started, "the job to run")
	l.ctl(t, "get", id).expect(t, exitOK, "running", "node-1", "block")
	l.ctl(t, "get", id, "--spec").expect(t, exitOK, `"service": "block"`)
	l.ctl(t, "list").expect(t, exitOK, id, "JOB")
	l.ctl(t, "list", "--state", "running", "-o", "json").expect(t, exitOK, `"job_id": "`+id+`"`)
	if got := l.ctl(t, "list", "--state", "succeeded").expect(t, exitOK); strings.Contains(got.out, id) {
		t.Error(got.out)
	}
	l.ctl(t, "submit", "block", "--wait", "--wait-timeout", "1ms").expect(t, exitFailure, "it goes on")
	l.ctl(t, "submit", "block", "--wait", "--progress", "--wait-timeout", "100ms").expect(t, exitFailure, "is running after 100ms; it goes on")
	soon(t, l.started, "the second job to run")

	// Watch it to its end, which a cancel brings.
	done := make(chan result, 1)
	go func() { done <- l.ctl(t, "watch", id) }()
	l.ctl(t, "cancel", id).expect(t, exitOK, "cancel")
	soon(t, done, "watch to end").expect(t, exitFailure, "cancelled")
	l.ctl(t, "get", id).expect(t, exitOK, "cancelled")
	close(l.release)

	ended := strings.TrimSpace(l.ctl(t, "submit", "fail").expect(t, exitOK).out)
	l.ctl(t, "watch", ended)
	if got := l.ctl(t, "cancel", ended).expect(t, exitOK, "failed"); !strings.Contains(got.err, "had ended before") {
		t.Errorf("cancel of a job that has ended prints %q", got.err)
	}
}

func TestWatchResult(t *testing.T) {
	t.Parallel()
	l := start(t)
	id := strings.TrimSpace(l.ctl(t, "submit", "block").expect(t, exitOK).out)
	soon(t, l.started, "the job to run")
	done := make(chan result, 1)
	go func() { done <- l.ctl(t, "watch", id) }()
	close(l.release)
	if got := soon(t, done, "watch to end").expect(t, exitOK); got.out != "\"released\"\n" {
		t.Errorf(`%q; want got.out == "\"released\"\n"`, got.out)
	}
	l.ctl(t, "watch", id, "-o", "json").expect(t, exitOK, `"state": "succeeded"`)
	l.ctl(t, "watch", "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z").expect(t, exitFailure, "not_found")
}

func TestNodes(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "nodes").expect(t, exitOK, "node-1", "online", "0/4", "echo,fail,block", "gpu=a100,zone=eu", "de,fr")
	l.ctl(t, "nodes", "-o", "json").expect(t, exitOK, `"node_id": "node-1"`)
	l.ctl(t, "nodes", "node-1", "--checked").expect(t, exitOK, "epoch", "checked", "fresh")
	l.ctl(t, "nodes", "node-2").expect(t, exitFailure, "not_found")
	l.ctl(t, "nodes", "--checked").expect(t, exitUsage)
	l.ctl(t, "nodes", "node-1", "--pool", "eu").expect(t, exitUsage, "a node id takes no filters")
	l.ctl(t, "nodes", "--status", "online", "--service", "echo", "--label-rule", "gpu in a100,h100", "--max-age", "1h").expect(t, exitOK, "node-1")
	for _, flags := range [][]string{{"--status", "drained"}, {"--pool", "eu"}, {"--service", "echo@1"}, {"--feature", "x"}, {"--label-rule", "gpu not_exists"}, {"--figure", "a.b == 1"}} {
		if r := l.ctl(t, append([]string{"nodes"}, flags...)...); r.code != exitOK || strings.Contains(r.out, "node-1") {
			t.Errorf(`%s: %+v; want r.code == %v, not strings.Contains(r.out, "node-1")`, flags, r, exitOK)
		}
	}
	l.ctl(t, "nodes", "--figure", "cpu").expect(t, exitFailure, "figure[0] is", "expected a comparison")
}

// TestWatchAll: one picture at once, another after the interval, and Ctrl-C ends without an error.
func TestWatchAll(t *testing.T) {
	t.Parallel()
	l := start(t)
	for _, format := range []string{"table", "json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		stdout, stderr := &buffer{written: make(chan struct{}, 1)}, &buffer{}
		code := make(chan int, 1)
		go func() {
			code <- run([]string{"--server", l.server.Addr(), "-o", format, "watch", "--interval", "100ms"},
				&environment{ctx: ctx, out: stdout, err: stderr, terminal: true})
		}()
		soon(t, stdout.written, "the first picture")
		soon(t, stdout.written, "the second picture")
		interrupt()
		if got := soon(t, code, "the end"); got != exitOK {
			t.Errorf("exit code is %d: %s", got, stderr)
		}
		out := stdout.String()
		if !strings.Contains(out, "node-1") || strings.HasPrefix(out, clearScreen) != (format == "table") {
			t.Errorf(`%q; want strings.Contains(out, "node-1"), strings.HasPrefix(out, clearScreen) == (format == "table")`, out)
		}
	}
	l.ctl(t, "watch", "--interval", "1ms").expect(t, exitUsage)
}

func TestTokens(t *testing.T) {
	t.Parallel()
	l := start(t,
		config.Token{Token: "acme-token", Tenant: "acme", Role: identity.Client},
		config.Token{Token: "root-token", Tenant: "ops", Role: identity.Operator},
	)
	l.ctl(t, "submit", "echo").expect(t, exitFailure, "unauthenticated", "FREESLOT_TOKEN")
	l.ctl(t, "--token", "acme-token", "submit", "echo", "--wait").expect(t, exitOK, "null")
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("root-token\n"), 0o600))
	l.ctl(t, "--token-file", file, "list", "--tenant", "acme").expect(t, exitOK, "echo", "acme")
	l.ctl(t, "--token", "acme-token", "nodes").expect(t, exitFailure, "permission_denied")
	l.ctl(t, "--token-file", "/nowhere", "list").expect(t, exitFailure, "/nowhere")
	id := "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"
	l.ctl(t, "watch", id).expect(t, exitFailure, "unauthenticated", "FREESLOT_TOKEN")
	l.ctl(t, "--token-file", file, "watch", id).expect(t, exitFailure, "not_found")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "submit", "echo", "--label", "gpu=h100").expect(t, exitFailure, "no_matching_node", "1 node: ", "\n  what speaks against each node: schedctl explain echo --label gpu=h100\n")
	l.ctl(t, "get", "nonsense").expect(t, exitFailure, "invalid_argument", "is not a job id")
	l.ctl(t, "cancel", "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z").expect(t, exitFailure, "not_found")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"sumbit"},
		{"submit"},
		{"submit", "echo", "hello"},
		{"submit", "echo", "1", "--file", "main.go"},
		{"submit", "echo", "--file", "/nowhere"},
		{"submit", "a b"},
		{"submit", "echo", "--slots", "-1"},
		{"submit", "echo", "--target", "d e"},
		{"submit", "echo", "--wait-timeout", "1s"},
		{"submit", "echo", "--timeout", "1us"},
		{"submit", "echo", "--timeout=-1s"},
		{"submit", "echo", "--timeout", "721h"},
		{"submit", "echo", "--priority", "10"},
		{"submit", "echo", "--priority=-1"},
		{"submit", "echo", "--max-attempts", "101"},
		{"submit", "echo", "--at", "tomorrow"},
		{"submit", "echo", "--at", "2026-12-31T23:00:00Z", "--in", "1h"},
		{"requeue"},
		{"submit", "echo", "--also-service", "asr@newest"},
		{"submit", "echo", "--label-rule", "gpu"},
		{"submit", "echo", "--label-rule", "gpu is A100"},
		{"submit", "echo", "--affinity-key", "a\nb"},
		{"list", "--state", "lost"},
		{"list", "--limit", "0"},
		{"get"},
		{"nodes", "--output", "xml"},
		{"--server", "ftp://x", "list"},
		{"--server", "http://", "list"},
	} {
		if got := command(t, "", args...); got.code != exitUsage || got.err == "" {
			t.Errorf("%q: exit code %d, expected 2: %s", args, got.code, got.err)
		}
	}
	command(t, "", "submit", "echo", "--at", "tomorrow").expect(t, exitUsage, `--at is "tomorrow", expected a date and time`, "2026-12-31T23:00:00Z")
	for _, name := range []string{"help", "server", "wait"} {
		command(t, "", "-"+name+"=x", "list").expect(t, exitUsage, "(with two dashes it is --"+name+")")
	}
	if got := command(t, "", "-nonsense", "--x").expect(t, exitUsage); strings.Contains(got.err, "two dashes") {
		t.Error(got.err)
	}
	command(t, "", "--help").expect(t, exitOK, "schedctl submit echo", "FREESLOT_SERVER")
	command(t, "", "submit", "--help").expect(t, exitOK, "--wait")
	for _, arg := range []string{"--version", "version"} {
		command(t, "", arg).expect(t, exitOK, "schedctl dev")
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	want := "cannot reach the scheduler at http://127.0.0.1:1: connect: connection refused (set --server or FREESLOT_SERVER if it is elsewhere)"
	command(t, "", "--server", "127.0.0.1:1", "nodes").expect(t, exitFailure, want)
	command(t, "", "--server", "127.0.0.1:1", "watch", "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z").expect(t, exitFailure, "cannot reach the scheduler")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/nodes" {
			http.Redirect(w, r, "http://elsewhere.example", http.StatusFound)
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer other.Close()
	command(t, "", "--server", other.URL, "list").expect(t, exitFailure, "does not answer like a scheduler")
	command(t, "", "--server", other.URL, "--token", "secret", "nodes").expect(t, exitFailure, "does not answer like a scheduler: HTTP 302")
}

// TestServerWithAPath: the replica has nothing at this path and cannot know why.
func TestServerWithAPath(t *testing.T) {
	t.Parallel()
	l := start(t)
	want := "http://" + l.server.Addr() + "/foo is not where a scheduler's paths begin: leave /foo out of --server (or FREESLOT_SERVER)"
	command(t, "", "--server", l.server.Addr()+"/foo/", "nodes").expect(t, exitFailure, want)
	l.ctl(t, "nodes", "node-2").expect(t, exitFailure, "not_found: there is no node node-2")
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	l := start(t)
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var stdout, stderr buffer
	go func() {
		code <- run([]string{"--server", l.server.Addr(), "submit", "block", "--wait"}, &environment{ctx: ctx, out: &stdout, err: &stderr})
	}()
	soon(t, l.started, "the job to run")
	interrupt()
	if got := soon(t, code, "the end"); got != exitFailure || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf(`%d %s; want got == %v, strings.Contains(stderr.String(), "interrupted")`, got, stderr.String(), exitFailure)
	}
	close(l.release)
}

// TestEnvironment cannot be parallel: it sets variables of the process.
func TestEnvironment(t *testing.T) {
	l := start(t, config.Token{Token: "root-token", Tenant: "ops", Role: identity.Operator})
	t.Setenv("FREESLOT_SERVER", "http://"+l.server.Addr())
	t.Setenv("FREESLOT_TOKEN", "root-token")
	command(t, "", "nodes").expect(t, exitOK, "node-1")
}
