package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDev brings up the whole system for trying out, lets its first batch run, and expects it to leave nothing
// behind but its folder.
func TestDev(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	for range 2 { // the second time on the data of the first
		listen, redis := closedPort(t), closedPort(t)
		stdout, stderr, code := run(t, nil, "scheduler", "dev", "--exit", "--dir", dir,
			"--listen", listen, "--redis-port", redis[strings.LastIndexByte(redis, ':')+1:])
		if code != 0 {
			t.Fatalf("exit status %d\n%s\n%s", code, stdout, stderr)
		}
		for _, want := range []string{"succeeded", "JOB"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("the table has no %s:\n%s", want, stdout)
			}
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
