package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestInterruptionNotice: a notice drains the node with a deadline of its own, and the job that
// cannot end by then waits for another node, uncounted. While the notice is there the node stays
// away; once it is withdrawn the same process registers the node again.
func TestInterruptionNotice(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "notice")
	n, begun := start(t, "interruption.file="+file, "interruption.interval=100ms", "interruption.stop_timeout=1ms", "stop_timeout=1h")
	job := n.submit()
	if _, err := begun.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{\"action\":\n \"terminate\"}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"interruption.notice", "node.draining"} {
		n.logged(want)
		if !strings.Contains(n.log.Text(), `{\"action\": \"terminate\"}`) {
			t.Errorf("%s; want what the notice says", n.log.Text())
		}
	}
	n.logged("node.stopped")
	n.logged("interruption.waits")
	n.nothingLeft()
	s, err := n.cell.Job(t.Context(), "", job)
	if err != nil || s.State != freeslot.StateWaiting || s.Failures != 0 {
		t.Errorf("%+v, %v; want the job to wait for another node, without a failure", s, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.logged("interruption.withdrawn")
	n.logged("agent.started")
	n.labels() // of the node that is there again
	n.signal()
	if code := n.exit(); code != exitOK {
		t.Errorf("exit code %d, expected 0", code)
	}
	n.nothingLeft()
}

// TestSignalAfterANotice: a signal ends the process, during the drain by stop_timeout and while
// it waits for the end of the notice.
func TestSignalAfterANotice(t *testing.T) {
	t.Parallel()
	for _, event := range []string{"node.draining", "interruption.waits"} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "notice")
			limit := "interruption.stop_timeout=1h"
			if event == "interruption.waits" {
				limit = "interruption.stop_timeout=1ms"
			}
			n, begun := start(t, "interruption.file="+file, "interruption.interval=100ms", limit, "stop_timeout=1ms")
			job := n.submit()
			if _, err := begun.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n.logged(event)
			n.signal()
			if code := n.exit(); code != exitOK {
				t.Errorf("exit code %d, expected 0", code)
			}
			n.nothingLeft()
			if s, err := n.cell.Job(t.Context(), "", job); err != nil || s.State != freeslot.StateWaiting || s.Failures != 0 {
				t.Errorf("%+v, %v; want the job to wait for another node", s, err)
			}
		})
	}
}

// TestNoticeAtTheStart: a machine that is about to go takes no jobs, not even after a restart.
func TestNoticeAtTheStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "notice")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n, _, args := prepare(t, "interruption.file="+file, "interruption.interval=100ms")
	var log output
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	go func() {
		ended <- run(args, &environment{ctx: ctx, hurry: t.Context(), out: &log, err: &log, environ: []string{}})
	}()
	waittest.Until(t, "the agent waits", func() bool { return strings.Contains(log.String(), `"interruption.waits"`) })
	n.nothingLeft()
	stop()
	if code := waittest.Receive(t, "the end of the agent", ended); code != exitOK || strings.Contains(log.String(), "node.registered") {
		t.Errorf("exit code %d, log %s; want 0 without a registration", code, log.String())
	}
}
