package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// What one operator changes, another one sees, with the reason.
func TestAudit(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "pause", "service", "tts", "--reason", "a bad model").expect(t, exitOK)
	l.ctl(t, "nodes", "drain", "nobody").expect(t, exitFailure, string(freeslot.CodeNotFound))
	waittest.Until(t, "both changes in the audit", func() bool {
		out := l.ctl(t, "audit").expect(t, exitOK, "WHEN").out
		return strings.Contains(out, "pause-service") && strings.Contains(out, "not_found")
	})
	lines := strings.Split(strings.TrimSpace(l.ctl(t, "audit").expect(t, exitOK).out), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "drain-node") || !strings.Contains(lines[2], "a bad model") {
		t.Errorf("the audit is %q, expected the drain first, and then the pause with its reason", lines)
	}
	out := l.ctl(t, "audit", "--call", "pause-service", "--since", "1h", "-o", "json").expect(t, exitOK).out
	var change api.AuditedChange
	if err := json.Unmarshal([]byte(out), &change); err != nil || strings.Count(out, "\n") != 1 {
		t.Fatalf("%q is no line of JSON: %v", out, err)
	}
	if change.Reason != "a bad model" || change.Outcome != "done" || change.Role != "admin" {
		t.Errorf("the change is %+v, expected it done by an admin for a bad model", change)
	}
	l.ctl(t, "audit", "--limit", "0").expect(t, exitUsage, "--limit")
	l.ctl(t, "resume", "service", "tts", "--reason", "two\nlines").expect(t, exitUsage, "--reason")
}
