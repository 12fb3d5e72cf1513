package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// TestMain is a process of clients when the program under test starts itself again.
func TestMain(m *testing.M) {
	tool.RunMode(modes)
	goleak.VerifyTestMain(m)
}

// TestRun does every part at toy size, so that none rots. Its times mean nothing.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "lists.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	lists, stop := newTool()
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if code := lists.Run(t.Context(), []string{"-short", "-out", out, "-markdown", markdown}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	want := len(lists.Parts)
	if !system.HasPostgres() {
		want-- // source is left out
	}
	if len(f.Parts) != want {
		t.Fatalf("%d parts; want %d", len(f.Parts), want)
	}
	for i := range f.Parts {
		p := &f.Parts[i]
		if len(p.Targets) == 0 || len(p.Tables) == 0 {
			t.Errorf("%s: nothing is reported: %+v", p.Name, p)
		}
		for k := range p.Targets {
			switch target := &p.Targets[k]; {
			case target.Bound == result.Exactly && !target.Met():
				t.Errorf("%s: %s is %v, expected %v", p.Name, target.What, *target.Measured, target.Limit)
			case target.Bound == result.AtLeast && *target.Measured <= 0:
				t.Errorf("%s: %s was not measured", p.Name, target.What)
			}
		}
	}
}

// TestIDs: no id is there twice, and all have the same form.
func TestIDs(t *testing.T) {
	t.Parallel()
	const n = 100_000
	seen := make(map[string]bool, n)
	for i, id := range idsOf(shuffled(0, n)) {
		if len(id) != idBytes || seen[id] {
			t.Fatalf("id %d is %q", i, id)
		}
		seen[id] = true
	}
}
