package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun does every part at toy size, so that none rots. Its times mean nothing.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute or two: make bench-once")
	}
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "console.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	console, stop := newTool()
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if code := console.Run(t.Context(), []string{"-short", "-out", out, "-markdown", markdown}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	want := len(console.Parts)
	if _, err := exec.LookPath("chromium"); err != nil {
		want -= inBrowser
	}
	if len(f.Parts) != want {
		t.Fatalf("%d parts; want %d", len(f.Parts), want)
	}
	for i := range f.Parts {
		if p := &f.Parts[i]; len(p.Targets) == 0 || len(p.Tables) == 0 {
			t.Errorf("%s reports %d targets and %d tables; want some", p.Name, len(p.Targets), len(p.Tables))
		}
	}
}
