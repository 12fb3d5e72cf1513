package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestDoctor: it needs a Redis and no replica, and its exit code tells how bad it is.
func TestDoctor(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	code, out, err := command(t, "doctor", "--redis-url", redis.AdminURL())
	if code != 1 || !strings.Contains(out, "WARNING: Redis has no maxmemory") || !strings.Contains(err, "attention") {
		t.Errorf("exit code %d, %s%s; want 1, and the missing maxmemory", code, out, err)
	}
	var report finding.Report
	code, out, err = command(t, "doctor", "--json", "--set", "redis.url="+redis.AdminURL())
	if bad := json.Unmarshal([]byte(out), &report); bad != nil || code != 1 || len(report.Findings) == 0 {
		t.Errorf("exit code %d, %s%s, %v; want 1, and a report in JSON", code, out, err, bad)
	}
	if code, _, err = command(t, "doctor", "--redis-url", "redis://127.0.0.1:1"); code != 2 || !strings.Contains(err, "cannot be used") {
		t.Errorf("without Redis: exit code %d, %s; want 2", code, err)
	}
	if code, _, err = command(t, "doctor", "--set", "redis.cells=65"); code != exitConfig {
		t.Errorf("with an invalid configuration: exit code %d, %s; want %d", code, err, exitConfig)
	}
}
