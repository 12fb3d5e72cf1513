package main

import "testing"

// TestDoctor: a replica says what status says, and what a close look at Redis finds, each with a
// section to read.
func TestDoctor(t *testing.T) {
	t.Parallel()
	l := start(t)
	// The test's Redis has neither an append-only file nor a maxmemory.
	l.ctl(t, "doctor").expect(t, exitFailure, "WARNING: redis at ", "appendonly", "WARNING: Redis has no maxmemory",
		"(maxmemory 0)", "next: set maxmemory", "see:  docs/redis.md#maxmemory")
	l.ctl(t, "doctor", "-o", "json").expect(t, exitFailure, `"id": "redis.maxmemory"`, `"docs": "docs/redis.md#maxmemory"`)
	l.ctl(t, "doctor", "--server", "http://127.0.0.1:1").expect(t, exitTrouble)
}
