package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestDrainWaits: the wait names the job that runs, ends once it has ended, and the job that waits
// stays where it is.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	l := start(t)
	job := strings.TrimSpace(l.ctl(t, "submit", "block", "1").expect(t, exitOK).out)
	soon(t, l.started, "the job to begin")
	stderr := buffer{written: make(chan struct{}, 1)}
	var stdout buffer
	done := make(chan int, 1)
	go func() {
		done <- run([]string{"--server", l.server.Addr(), "nodes", "drain", "node-1", "--wait", "--wait-timeout", "1h"},
			&environment{ctx: t.Context(), in: strings.NewReader(""), out: &stdout, err: &stderr})
	}()
	soon(t, stderr.written, "the job that runs")
	waits := strings.TrimSpace(l.ctl(t, "submit", "echo", `"a"`).expect(t, exitOK).out)
	select {
	case code := <-done:
		t.Fatalf("the wait ended with %d while a job runs", code)
	default:
	}
	close(l.release)
	result{soon(t, done, "the end of the wait"), stdout.String(), stderr.String()}.expect(
		t, exitOK, "node-1 is drained\n", "schedctl: node-1 runs 1 job: "+job+" (block)\n",
	)
	l.ctl(t, "get", waits).expect(t, exitOK, "waiting")
	l.ctl(t, "nodes", "drain", "node-1", "-w", "-o", "json").expect(t, exitOK, `"status": "drained"`)
}

// TestDrainWaitsNotForEver: after the limit the exit code says that jobs run, and they go on.
func TestDrainWaitsNotForEver(t *testing.T) {
	t.Parallel()
	l := start(t)
	job := strings.TrimSpace(l.ctl(t, "submit", "block", "1").expect(t, exitOK).out)
	soon(t, l.started, "the job to begin")
	l.ctl(t, "nodes", "drain", "node-1", "--wait", "--wait-timeout", "1ms").expect(
		t, exitStillRuns, "after 1ms jobs still run; they go on, and the nodes stay drained: node-1 runs 1 job: "+job+" (block)\n",
	)
	got := l.ctl(t, "nodes", "drain", "node-1", "--wait", "--wait-timeout", "1ms", "-o", "json").expect(t, exitStillRuns)
	var nodes []struct {
		ID   string `json:"node_id"`
		Jobs []struct {
			ID string `json:"job_id"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(got.out), &nodes); err != nil || len(nodes) != 1 || nodes[0].ID != "node-1" || nodes[0].Jobs[0].ID != job {
		t.Errorf("%s, %v; want node-1 with its job", got.out, err)
	}
	close(l.release)
	l.ctl(t, "watch", job).expect(t, exitOK, `"released"`)
	l.ctl(t, "nodes", "drain", "node-1", "--wait-timeout", "1m").expect(t, exitUsage, "--wait-timeout is 1m0s, expected it beside --wait")
}

// TestDrainOfSeveral: nodes that do not exist are an error, and nothing is waited for; the others
// are drained all the same.
func TestDrainOfSeveral(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "nodes", "drain", "node-2", "node-1", "node-3", "--wait").expect(
		t, exitFailure, "node-1 is drained\n", "node node-2: not_found", "node node-3: not_found",
	)
	l.awaitStatus(t, "drained")
}

// drainReplica is a replica with nodes that answer by a script: answers[node] are the answers to
// GET, the last one for ever; jobs are what runs on each node. "away" stands for a cell that does
// not answer the first time.
func drainReplica(t *testing.T, answers map[string][]string, jobs map[string]string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/nodes/{id}/drain", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"node_id":%q,"status":"drained"}`, r.PathValue("id"))
	})
	mux.HandleFunc("GET /v1/nodes/{id}", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Query().Get("checked") != "true" {
			t.Errorf("%s asks for a state that may be old", r.URL)
		}
		id := r.PathValue("id")
		answer := answers[id][0]
		if len(answers[id]) > 1 {
			answers[id] = answers[id][1:]
		}
		status, text, _ := strings.Cut(answer, " ")
		if status != "200" {
			w.WriteHeader(map[string]int{"404": 404, "503": 503, "403": 403}[status])
		}
		_, _ = w.Write([]byte(text))
	})
	mux.HandleFunc("GET /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		list := ""
		if r.URL.Query().Get("state") == "running" {
			list = jobs[r.URL.Query().Get("node")]
		}
		if list == "away" {
			jobs[r.URL.Query().Get("node")] = ""
			_, _ = w.Write([]byte(`{"jobs":[],"unreachable":[3]}`))
			return
		}
		_, _ = fmt.Fprintf(w, `{"jobs":[%s]}`, list)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, asked
}

// TestDrainWaitsForTheTruth: answers from a memory that may be old, and no answers, do not end the
// wait; a node that has left ends it.
func TestDrainWaitsForTheTruth(t *testing.T) {
	t.Parallel()
	url, _ := drainReplica(t, map[string][]string{
		"a": {
			`200 {"status":"drained","used":0,"checked":"timeout"}`, `503 {"code":"unavailable","message":"Redis is away"}`,
			`200 {"status":"drained","used":0,"checked":"fresh"}`,
		},
		"b": {`404 {"code":"not_found","message":"there is no node b"}`},
	}, nil)
	got := command(t, "", "--server", url, "nodes", "drain", "a", "b", "a", "--wait", "-o", "json").expect(
		t, exitOK, `"node_id": "a"`, `"status": "drained"`, `"node_id": "b"`, `"status": "gone"`, "Redis is away", "the wait goes on",
	)
	if n := strings.Count(got.out, "node_id"); n != 2 {
		t.Errorf("%d nodes in\n%s; want 2", n, got.out)
	}

	url, _ = drainReplica(t, map[string][]string{"a": {`200 {"status":"drained","used":0,"checked":"fresh"}`}},
		map[string]string{"a": "away"})
	command(t, "", "--server", url, "nodes", "drain", "a", "--wait").
		expect(t, exitOK, "cells [3] did not answer, so their jobs are not known; the wait goes on")
}

// TestDrainIsUndone: someone who ends the drain ends the wait, too, and so does a refusal.
func TestDrainIsUndone(t *testing.T) {
	t.Parallel()
	url, _ := drainReplica(t, map[string][]string{
		"a": {`200 {"status":"drained","used":1,"checked":"fresh"}`, `200 {"status":"online","used":1,"checked":"fresh"}`},
		"b": {`403 {"code":"permission_denied","message":"not for you"}`},
	}, map[string]string{"a": `{"job_id":"0-1","service":"asr"}`})
	command(t, "", "--server", url, "nodes", "drain", "a", "--wait").expect(
		t, exitFailure, "a runs 1 job: 0-1 (asr)", "node a is not drained any more: an undrain came in between",
	)
	command(t, "", "--server", url, "nodes", "drain", "b", "--wait").expect(t, exitFailure, "permission_denied")
}

// TestDrainNamesFewJobs: a node with many jobs does not fill the screen, and a job that only Redis
// knows of holds the wait.
func TestDrainNamesFewJobs(t *testing.T) {
	t.Parallel()
	var jobs []string
	for i := range 12 {
		jobs = append(jobs, fmt.Sprintf(`{"job_id":"0-%d","service":"asr"}`, i))
	}
	url, asked := drainReplica(t, map[string][]string{"a": {`200 {"status":"drained","used":0,"checked":"fresh"}`}},
		map[string]string{"a": strings.Join(jobs, ",")})
	stderr := buffer{written: make(chan struct{}, 1)}
	ctx := waittest.Context(t)
	done := make(chan int, 1)
	go func() {
		done <- run([]string{"--server", url, "nodes", "drain", "a", "--wait", "--wait-timeout", "700ms"},
			&environment{ctx: ctx, in: strings.NewReader(""), out: new(buffer), err: &stderr})
	}()
	code := soon(t, done, "the end of the wait")
	text := stderr.String()
	if code != exitStillRuns || strings.Count(text, "schedctl: a runs 12 jobs: 0-0 (asr) 0-1 (asr)") != 1 || !strings.Contains(text, "0-9 (asr) and 2 more\n") {
		t.Errorf("exit code %d after %d questions, %s; want %d, and the jobs named once before the end", code, asked.Load(), text, exitStillRuns)
	}
}

// TestNodesInOrderOfRemoval asks for it, by the name ls as well.
func TestNodesInOrderOfRemoval(t *testing.T) {
	t.Parallel()
	var asked atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(&r.URL.RawQuery)
		_, _ = w.Write([]byte(`{"nodes":[]}`))
	}))
	defer server.Close()
	command(t, "", "--server", server.URL, "nodes", "ls", "--pool", "gpu", "--order", "removal").expect(t, exitOK)
	if query := *asked.Load(); query != "order=removal&pool=gpu" {
		t.Errorf("asked for %s; want order=removal&pool=gpu", query)
	}
	l := start(t)
	l.ctl(t, "nodes", "ls", "--order", "removal").expect(t, exitOK, "node-1")
	l.ctl(t, "nodes", "--order", "age").expect(t, exitUsage, "removal")
}

// TestLeavingNode shows why a node leaves.
func TestLeavingNode(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"node_id":"a","status":"draining","resources":{"at_ms":1000,"leaving":"interruption notice: \u001b[1m"}}`))
	}))
	defer server.Close()
	command(t, "", "--server", server.URL, "nodes", "a").expect(t, exitOK, "draining", "leaving", "interruption notice:  [1m\n")
}
