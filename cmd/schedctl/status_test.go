package main

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestStatus: the exit code tells how bad it is, and each finding tells the next step.
func TestStatus(t *testing.T) {
	t.Parallel()
	l := start(t)
	// The test's Redis keeps no append-only file.
	l.ctl(t, "status").expect(t, exitFailure, "WARNING, for ", "appendonly", "next: ")
	l.ctl(t, "submit", "echo", "--label", "gpu=none").expect(t, exitFailure, "no_matching_node")

	l.ctl(t, "pause", "service", "echo").expect(t, exitOK)
	l.ctl(t, "submit", "echo").expect(t, exitOK)
	var got result
	waittest.Until(t, "the pause to be a finding", func() bool {
		got = l.ctl(t, "status")
		return strings.Contains(got.out, "something is paused")
	})
	got.expect(t, exitFailure, "1 job waits", "echo (job 0-")
	l.ctl(t, "status", "-o", "json").expect(t, exitFailure, `"id": "queues.paused"`)
	l.ctl(t, "status", "--server", "http://127.0.0.1:1").expect(t, exitTrouble)
}
