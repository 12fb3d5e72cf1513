package measure

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestChild(t *testing.T) {
	t.Parallel()
	c, err := StartChild(t.Context(), "cat", exec.Command("sh", "-c", "echo ready; exec cat"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"one", "two"} {
		if got, err := c.Ask(t.Context(), line); err != nil || got != line {
			t.Errorf("asked %s: %q, %v", line, got, err)
		}
	}
	if seconds, err := CPUSeconds(c.PID()); err != nil || seconds < 0 || seconds > 60 {
		t.Errorf("CPU time is %v, %v", seconds, err)
	}
	if err := c.End(); err != nil {
		t.Error(err)
	}
}

func TestChildFails(t *testing.T) {
	t.Parallel()
	if _, err := StartChild(t.Context(), "liar", exec.Command("sh", "-c", "echo never; exec cat")); err == nil || !strings.Contains(err.Error(), `"never"`) {
		t.Errorf("got %v", err)
	}
	if _, err := StartChild(t.Context(), "short", exec.Command("sh", "-c", "echo sorry >&2; exit 3")); err == nil {
		t.Error("a child that ended was taken for ready")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := StartChild(ctx, "mute", exec.Command("cat")); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
	c, err := StartChild(t.Context(), "once", exec.Command("sh", "-c", "echo ready; read line; exit 4"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ask(t.Context(), "go"); err == nil {
		t.Error("a child that ended has answered")
	}
	_ = c.End()
}

// TestCPUSeconds is about a process that works.
func TestCPUSeconds(t *testing.T) {
	t.Parallel()
	before, err := CPUSeconds(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		after, err := CPUSeconds(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a process that works used no time")
		}
	}
}
