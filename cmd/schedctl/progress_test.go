package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

// follows runs a command that writes progress, and then lets the job end.
func (l *live) follows(t *testing.T, args ...string) result {
	t.Helper()
	var stdout buffer
	stderr := buffer{written: make(chan struct{}, 1)}
	done := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		done <- run(append([]string{"--server", l.server.Addr()}, args...), &environment{ctx: ctx, in: strings.NewReader(""), out: &stdout, err: &stderr})
	}()
	soon(t, stderr.written, "progress")
	close(l.release)
	return result{soon(t, done, "the command to end"), stdout.String(), stderr.String()}
}

func TestSubmitShowsProgress(t *testing.T) {
	t.Parallel()
	l := start(t)
	got := l.follows(t, "submit", "talk", `{"done":7}`, "--wait", "--progress", "--progress-timeout", "1m", "--on-lease-loss", "cancel")
	got.expect(t, exitOK)
	if got.out != "\"released\"\n" || got.err != "attempt 1: {\"done\":7}\n" {
		t.Errorf("out %q, err %q", got.out, got.err)
	}
}

func TestWatchShowsProgress(t *testing.T) {
	t.Parallel()
	l := start(t)
	id := strings.TrimSpace(l.ctl(t, "submit", "talk", `"seven"`).expect(t, exitOK).out)
	got := l.follows(t, "watch", id, "-o", "json").expect(t, exitOK)
	var told freeslot.Progress
	if err := json.Unmarshal([]byte(got.err), &told); err != nil || told.Attempt != 1 || string(told.Value) != `"seven"` {
		t.Errorf("%v: %q; want no error, told.Attempt == 1, string(told.Value) == `\"seven\"`", err, got.err)
	}
	l.ctl(t, "get", id).expect(t, exitOK, "progress", `"seven"`, "told")
}

func TestSupervisionFlags(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"--progress-timeout is 1ns": {"--progress-timeout", "1ns"},
		"job.progress_timeout_ms":   {"--progress-timeout", "1000h"},
		`--timeout: expected a duration such as 30s, 5m or 7d, got "30"` + "\n": {"--timeout", "30"},
		"--progress is set": {"--progress"},
		`must be one of`:    {"--on-lease-loss", "maybe"},
	} {
		command(t, "", append([]string{"submit", "echo"}, args...)...).expect(t, exitUsage, says)
	}
}

// TestDialTooLong: a server whose packets are lost got no request, so the next one can get it.
func TestDialTooLong(t *testing.T) {
	t.Parallel()
	c := &apiClient{base: &url.URL{Scheme: "http", Host: "h:1"}}
	slow := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	var dial *net.OpError
	if err := c.unreachable(&url.Error{Op: "Get", URL: "http://h:1", Err: slow}); !errors.As(err, &dial) || dial.Op != "dial" {
		t.Errorf("%v, expected that it was not dialed", err)
	}
	read := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	if err := c.unreachable(&url.Error{Op: "Get", URL: "http://h:1", Err: read}); errors.As(err, &dial) && dial.Op == "dial" {
		t.Errorf("%v, and it may have been asked", err)
	}
}

// TestServers: if a server is missing the next one is tried, also over the WebSocket.
func TestServers(t *testing.T) {
	t.Parallel()
	l := start(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	servers := strings.TrimPrefix(gone.URL, "http://") + ", " + l.server.Addr()
	id := strings.TrimSpace(command(t, "", "--server", servers, "submit", "echo", `1`).expect(t, exitOK).out)
	if got := command(t, "", "--server", servers, "watch", id).expect(t, exitOK); got.out != "1\n" {
		t.Error(got)
	}
	command(t, "", "--server", gone.URL+",127.0.0.1:1", "get", id).expect(t, exitFailure, "cannot reach the scheduler at "+gone.URL+": connect: connection refused", "; cannot reach the scheduler at http://127.0.0.1:1")
	command(t, "", "--server", servers+",ftp://x", "get", id).expect(t, exitUsage, "ftp://x")
}

// TestConnectionsAreTold: one warning when all are gone, and one message when one is back.
func TestConnectionsAreTold(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	a := &app{environment: &environment{err: &told}, api: &apiClient{others: make([]*url.URL, 1)}}
	log := a.connections()
	for _, event := range []string{"client.connected", "client.disconnected", "client.connect_failed", "client.connected"} {
		log.Info(event)
	}
	if told.Len() > 0 {
		t.Errorf("of a change of replicas: %s", told.String())
	}
	for range 3 {
		log.Warn("client.connect_failed")
	}
	log.Info("client.connected")
	if want := "schedctl: no scheduler can be reached; reconnecting, the job goes on\nschedctl: connected again\n"; told.String() != want {
		t.Error(told.String())
	}
}
