package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

// follows runs a command that writes progress, and lets the job end once it has.
func (l *live) follows(t *testing.T, args ...string) result {
	t.Helper()
	var stdout buffer
	stderr := buffer{written: make(chan struct{}, 1)}
	done := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		done <- run(append([]string{"--server", l.server.Addr()}, args...), &environment{ctx: ctx, in: strings.NewReader(""), out: &stdout, err: &stderr})
	}()
	soon(t, stderr.written, "progress")
	close(l.release)
	return result{soon(t, done, "the command to end"), stdout.String(), stderr.String()}
}

func TestSubmitShowsProgress(t *testing.T) {
	t.Parallel()
	l := start(t)
	got := l.follows(t, "submit", "talk", `{"done":7}`, "--wait", "--progress", "--progress-timeout", "1m", "--on-lease-loss", "cancel")
	got.expect(t, exitOK)
	if got.out != "\"released\"\n" || got.err != "attempt 1: {\"done\":7}\n" {
		t.Errorf("out %q, err %q", got.out, got.err)
	}
}

func TestWatchShowsProgress(t *testing.T) {
	t.Parallel()
	l := start(t)
	id := strings.TrimSpace(l.ctl(t, "submit", "talk", `"seven"`).expect(t, exitOK).out)
	got := l.follows(t, "watch", id, "-o", "json").expect(t, exitOK)
	var told freeslot.Progress
	if err := json.Unmarshal([]byte(got.err), &told); err != nil || told.Attempt != 1 || string(told.Value) != `"seven"` {
		t.Errorf("%v: %q", err, got.err)
	}
	l.ctl(t, "get", id).expect(t, exitOK, "progress", `"seven"`, "told")
}

func TestSupervisionFlags(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"--progress-timeout is 1ns": {"--progress-timeout", "1ns"},
		"job.progress_timeout_ms":   {"--progress-timeout", "1000h"},
		"--progress is set":         {"--progress"},
		`must be one of`:            {"--on-lease-loss", "maybe"},
	} {
		command(t, "", append([]string{"submit", "echo"}, args...)...).expect(t, exitUsage, says)
	}
}
