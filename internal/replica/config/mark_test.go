package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestByteOrderMark: some editors write one at the beginning of a file.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte("\ufeffsession: {ping_interval: 5s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := LoadReplica(Options{File: file, Environ: []string{}})
	if err != nil || cfg.Session.PingInterval != 5*time.Second {
		t.Errorf("the interval is %s, expected 5s: %v", cfg.Session.PingInterval, err)
	}
	if text, err := ReadFile(file); err != nil || text[0] != 's' {
		t.Errorf("%q, %v, expected no byte order mark", text, err)
	}
}
