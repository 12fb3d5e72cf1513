package main

import (
	"strings"
	"testing"
)

// TestBulk: a plan tells what it would touch, and only its own command starts it.
func TestBulk(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "pause", "service", "echo").expect(t, exitOK)
	for range 3 {
		l.ctl(t, "submit", "echo").expect(t, exitOK)
	}
	plan := l.ctl(t, "bulk", "plan", "cancel", "--state", "waiting")
	plan.expect(t, exitOK, "cancel 3 targets, all of them", "by service: echo 3", "start it: schedctl bulk start ")
	_, command, _ := strings.Cut(plan.out, "start it: schedctl ")
	start := strings.Fields(command)
	l.ctl(t, "bulk", "start", start[2], "--count", "4").expect(t, exitFailure, "conflict", "3 targets")
	l.ctl(t, append(start, "--reason", "a trial", "--wait")...).expect(t, exitOK, "ended", "a trial", "outcomes: done 3")
	l.ctl(t, "list", "--state", "waiting", "-o", "json").expect(t, exitOK, "[]")
	l.ctl(t, "bulk", "ls").expect(t, exitOK, start[2], "cancel", "ended")
	l.ctl(t, "bulk", "show", start[2]).expect(t, exitOK, "such as: 0-")
	l.ctl(t, "bulk", "stop", start[2]).expect(t, exitOK, "ended")
	l.ctl(t, "audit").expect(t, exitOK, "start-bulk", "cancel 3 targets by operation "+start[2], "a trial")
	l.ctl(t, "bulk", "plan", "drain", "--state", "dead").expect(t, exitFailure, "filter", "drain is for nodes")
	l.ctl(t, "bulk", "show", "none").expect(t, exitFailure, "not_found")
}
