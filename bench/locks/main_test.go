package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// TestMain is a process of a load when the program under test starts itself again.
func TestMain(m *testing.M) {
	tool.RunMode(modes)
	goleak.VerifyTestMain(m)
}

// TestRun does every part at toy size, so that none rots. Its times mean nothing.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "locks.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	locks := newTool()
	if code := locks.Run(t.Context(), []string{"-short", "-out", out, "-markdown", markdown}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Parts) != len(locks.Parts) {
		t.Fatalf("%d parts, expected %d", len(f.Parts), len(locks.Parts))
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

// TestQueue: a grant that passes an older ticket counts, and one in order does not.
func TestQueue(t *testing.T) {
	t.Parallel()
	var q queue
	for _, line := range []string{
		`1.1 [0 lua] "ZADD" "lock:queue:k0" "10" "p:1 30000 vm:1"`,
		`1.1 [0 lua] "ZADD" "lock:queue:k0" "11" "p:2 30000 vm:1"`,
		`1.1 [0 lua] "ZADD" "lock:alive" "12" "p"`,
		`1.1 [0 lua] "HSET" "lock:held:k0" "layout" "1" "acquisition" "p:1" "count" "1"`,
		`1.1 [0 lua] "ZREM" "lock:queue:k0" "p:1 30000 vm:1"`,
		`1.1 [0 lua] "HSET" "lock:held:k0" "grant" ""`,
		`1.1 [0 lua] "HSET" "lock:held:k0" "layout" "1" "acquisition" "p:3" "count" "1"`,
	} {
		q.see(line)
	}
	if q.grants != 2 || q.passed != 1 {
		t.Errorf("%d grants, %d passed, expected 2 and 1", q.grants, q.passed)
	}
}
