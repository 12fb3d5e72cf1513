package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// TestJobsThatWait: the node has four slots. A waiting job is shown with its place, obeys its
// priority, expires, and is cancelled at once.
func TestJobsThatWait(t *testing.T) {
	t.Parallel()
	l := start(t)
	submit := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(l.ctl(t, append([]string{"submit"}, args...)...).expect(t, exitOK).out)
	}
	holder := submit("block", "--slots", "4")
	soon(t, l.started, "the first job to run")
	last := submit("block", "--max-attempts", "7")
	l.ctl(t, "get", last).expect(t, exitOK, "waiting (position 1)", "deadline")
	first := submit("block", "--priority", "9", "--timeout", "1h")
	l.ctl(t, "get", first).expect(t, exitOK, "waiting (position 1)")
	l.ctl(t, "get", last).expect(t, exitOK, "waiting (position 2)")

	got := l.ctl(t, "get", first, "-o", "json").expect(t, exitOK)
	var status freeslot.JobStatus
	if err := json.Unmarshal([]byte(got.out), &status); err != nil || status.Priority != 9 || status.DeadlineMS-status.SubmittedAtMS != 3_600_000 || status.Attempt != 0 {
		t.Errorf("%v %s; want no error, status.Priority == 9, status.DeadlineMS-status.SubmittedAtMS == 3_600_000, status.Attempt == 0", err, got.out)
	}
	got = l.ctl(t, "list", "--state", "waiting").expect(t, exitOK, first, last, "waiting")
	if strings.Contains(got.out, holder) {
		t.Error(got.out)
	}
	l.ctl(t, "list").expect(t, exitOK, first, last, holder)
	l.ctl(t, "explain", "block").expect(t, exitOK, "A submit now would wait")
	l.ctl(t, "submit", "echo", "--wait", "--wait-timeout", "1ms").expect(t, exitFailure, "waiting (position 1)", "it goes on")
	l.ctl(t, "submit", "echo", "--wait", "--timeout", "10ms").expect(t, exitFailure, "expired: it had not ended by its deadline")

	l.ctl(t, "cancel", last).expect(t, exitOK, "cancelled")
	done := make(chan result, 1)
	go func() { done <- l.ctl(t, "watch", first) }()
	close(l.release)
	soon(t, done, "watch to end").expect(t, exitOK, "released")
}

// TestJobForLater: the time of the run is shown.
func TestJobForLater(t *testing.T) {
	t.Parallel()
	l := start(t)
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	id := strings.TrimSpace(l.ctl(t, "submit", "echo", "--at", at.Format(time.RFC3339)).expect(t, exitOK).out)
	shown := "scheduled (run at " + at.Format("2006-01-02 15:04:05") + ")"
	l.ctl(t, "get", id).expect(t, exitOK, shown)
	l.ctl(t, "list").expect(t, exitOK, shown)
	l.ctl(t, "get", id, "-o", "json").expect(t, exitOK, fmt.Sprintf(`"run_at_ms": %d`, at.UnixMilli()))
	l.ctl(t, "cancel", id).expect(t, exitOK, "cancelled")
}

// TestRequeue: a failed job becomes a new one.
func TestRequeue(t *testing.T) {
	t.Parallel()
	l := start(t)
	var failed freeslot.JobStatus
	got := l.ctl(t, "submit", "fail", `{"a":1}`, "--slots", "2", "--wait", "-o", "json").expect(t, exitFailure)
	must(t, json.Unmarshal([]byte(got.out), &failed))
	id := strings.TrimSpace(l.ctl(t, "requeue", failed.ID).expect(t, exitOK).out)
	if id == failed.ID {
		t.Error("the id is the old one's")
	}
	l.ctl(t, "watch", id).expect(t, exitFailure, "failed on node node-1: handler_error")
	l.ctl(t, "requeue", failed.ID, "-o", "json").expect(t, exitOK, `"slots": 2`, id) // and no third job
	l.ctl(t, "get", failed.ID).expect(t, exitOK, "failed", "requeued as", "ATTEMPT", "handler_error")
	l.ctl(t, "get", id).expect(t, exitOK, "requeued from  "+failed.ID)

	good := strings.TrimSpace(l.ctl(t, "submit", "block").expect(t, exitOK).out)
	soon(t, l.started, "the job to run")
	l.ctl(t, "requeue", good).expect(t, exitFailure, "invalid_argument", "expected one that is dead, failed or expired")
	l.ctl(t, "cancel", good, "--if-state", "waiting").expect(t, exitFailure, "conflict", good+" is running in attempt 1 by now, expected waiting")
	l.ctl(t, "cancel", good, "--if-attempt", "2").expect(t, exitFailure, "conflict", "expected attempt 2")
	l.ctl(t, "cancel", good, "--if-attempt", "1", "--if-state", "running").expect(t, exitOK, "cancelling")
	l.ctl(t, "requeue", "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z").expect(t, exitFailure, "not_found")
	close(l.release)
}

func TestWhatHappened(t *testing.T) {
	t.Parallel()
	failure := &freeslot.JobError{Code: "node_lost", Message: "it fell \x1bsilent"}
	for want, status := range map[string]freeslot.JobStatus{
		"job 0-1 failed on node n1: node_lost: it fell  silent":                                      {ID: "0-1", State: freeslot.StateFailed, Node: "n1", Error: failure},
		"job 0-1 is dead after 3 failures, the last on node n1: node_lost: it fell  silent":          {ID: "0-1", State: freeslot.StateDead, Node: "n1", Failures: 3, Error: failure},
		"job 0-1 is dead after 1 failure, on node n1: node_lost: it fell  silent":                    {ID: "0-1", State: freeslot.StateDead, Node: "n1", Failures: 1, Error: failure},
		"job 0-1 expired: it had not ended by its deadline":                                          {ID: "0-1", State: freeslot.StateExpired},
		"job 0-1 expired: it had not ended by its deadline; before that: node_lost: it fell  silent": {ID: "0-1", State: freeslot.StateExpired, Failures: 1, Error: failure},
		"job 0-1 is cancelled": {ID: "0-1", State: freeslot.StateCancelled},
	} {
		if got := whatHappened(status); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestWaitGoesOn: the server dies while the job runs. The command goes on at the next one; without
// one it names the job.
func TestWaitGoesOn(t *testing.T) {
	t.Parallel()
	l := start(t)
	first, second := door(t, l.server.Addr()), door(t, l.server.Addr())
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var stdout buffer
	stderr := buffer{written: make(chan struct{}, 1)}
	go func() {
		code <- run([]string{"--server", first.addr() + "," + second.addr(), "submit", "talk", `{"done":7}`, "--wait", "--progress"}, &environment{ctx: ctx, out: &stdout, err: &stderr})
	}()
	soon(t, stderr.written, "progress")
	first.close()
	soon(t, second.opened, "the next server")
	second.close()
	for !strings.Contains(stderr.String(), "no scheduler can be reached; reconnecting, job ") {
		soon(t, stderr.written, "a warning")
	}
	interrupt()
	if got := soon(t, code, "the end"); got != exitFailure || !strings.Contains(stderr.String(), "interrupted; job ") {
		t.Errorf(`%d %s; want got == %v, strings.Contains(stderr.String(), "interrupted; job ")`, got, stderr.String(), exitFailure)
	}

	first, second = door(t, l.server.Addr()), door(t, l.server.Addr())
	close(l.release)
	go func() {
		code <- run([]string{"--server", first.addr() + "," + second.addr(), "submit", "block", "--wait"}, &environment{ctx: t.Context(), out: &stdout, err: &stderr})
	}()
	soon(t, first.opened, "a connection")
	first.close()
	if got := soon(t, code, "the result"); got != exitOK || !strings.Contains(stdout.String(), "released") {
		t.Errorf(`%d %s %s; want got == %v, strings.Contains(stdout.String(), "released")`, got, stdout.String(), stderr.String(), exitOK)
	}
}

// doorTo passes connections on to a server until it closes.
type doorTo struct {
	listener net.Listener
	opened   chan struct{}
	close    func()
}

func (d *doorTo) addr() string { return d.listener.Addr().String() }

func door(t *testing.T, server string) *doorTo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var passing sync.WaitGroup
	d := &doorTo{listener: listener, opened: make(chan struct{}, 100), close: func() {
		cancel()
		_ = listener.Close()
		passing.Wait()
	}}
	t.Cleanup(d.close)
	pass := func(from, to net.Conn) {
		_, _ = io.Copy(to, from)
		_ = from.Close()
		_ = to.Close()
	}
	passing.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _ = in.Close(); _ = out.Close() })
			passing.Go(func() { pass(in, out) })
			passing.Go(func() { pass(out, in) })
			select {
			case d.opened <- struct{}{}:
			default:
			}
		}
	})
	return d
}
