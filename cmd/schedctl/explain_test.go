package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// TestPrintExplanation prints the answer in the API's own golden file.
func TestPrintExplanation(t *testing.T) {
	t.Parallel()
	answer, err := os.ReadFile(filepath.Join("..", "..", "internal", "api", "testdata", "explain.json"))
	must(t, err)
	var e explanation
	must(t, json.Unmarshal(answer, &e))
	e.Omitted = 3
	var out bytes.Buffer
	a := &app{environment: &environment{out: &out}}
	must(t, a.printExplanation(&e))
	golden.Check(t, "explain.txt", out.String())
}

func TestExplain(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "explain", "echo", "--source-language", "en", "--target", "de-AT", "--label", "gpu=a100", "--label-rule", "zone in eu,us", "--slots", "2").
		expect(t, exitOK, "1 of 1 node fits, 1 of them could take the job now.", "could take it",
			"A submit now would be placed: offered to node-1.")
	l.ctl(t, "explain", "echo", "--slots", "99").
		expect(t, exitOK, "0 of 1 node fit, 0", "against: slots 1", "A submit now would be answered no_matching_node: no node fits, however idle. With 4 slots or less one would.")
	l.ctl(t, "submit", "echo", "--slots", "99").expect(t, exitFailure, "no_matching_node")
	l.ctl(t, "explain", "echo", "--label-rule", "zone not_in eu").
		expect(t, exitOK, "0 of 1 node fit", "against: labels 1", "labels: label zone is eu, expected not in eu", "answered no_matching_node: no node fits, however idle.\n")
	l.ctl(t, "explain", "unknown", "--limit", "0").expect(t, exitOK, "against: service 1", "… and 1 more")
	got := l.ctl(t, "explain", "echo", "--affinity-key", "k", "--prefer-pool", "eu", "-o", "json").expect(t, exitOK)
	var e explanation
	if err := json.Unmarshal([]byte(got.out), &e); err != nil || e.Total != 1 || len(e.Tiers) != 2 || len(e.Candidates) != 1 || e.Nodes[0].Node != "node-1" {
		t.Errorf(`%v %s; want no error, e.Total == 1, len(e.Tiers) == 2, len(e.Candidates) == 1, e.Nodes[0].Node == "node-1"`, err, got.out)
	}
	for _, args := range [][]string{
		{"explain"}, {"explain", "no such name"}, {"explain", "echo", "--label-rule", "gpu"}, {"explain", "echo", "--slots", "-1"},
	} {
		l.ctl(t, args...).expect(t, exitUsage)
	}
	l.ctl(t, "explain", "echo", "--limit", "1001").expect(t, exitFailure, "limit is 1001")
}

// TestExplainSubmittedJob: a job that waits for a full node, and one that was cancelled.
func TestExplainSubmittedJob(t *testing.T) {
	t.Parallel()
	l := start(t)
	submit := func() string {
		t.Helper()
		var status freeslot.JobStatus
		must(t, json.Unmarshal([]byte(l.ctl(t, "submit", "block", "--slots", "4", "-o", "json").expect(t, exitOK).out), &status))
		return status.ID
	}
	first, second := submit(), submit()
	l.ctl(t, "explain", "--job", first).expect(t, exitOK, "job "+first+" of service block is running:", "attempt 1 on node node-1 runs since")
	l.ctl(t, "explain", "--job", second).expect(t, exitOK, "is waiting:", "it has place 1 in the queue", "1 of 1 node fits, and 0 of them could take it now; against the others: full 1", "0 of 4 slots are free, expected 4")
	l.ctl(t, "explain", "--job", second, "-o", "json").expect(t, exitOK, `"why": [`)
	l.ctl(t, "cancel", second).expect(t, exitOK)
	l.ctl(t, "explain", "--job", second).expect(t, exitOK, "is cancelled:", "it was cancelled before its first attempt")
	l.ctl(t, "explain", "--job", "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z").expect(t, exitFailure, "not_found")
	for _, args := range [][]string{{"echo"}, {"--pool", "eu"}, {"--slots", "2"}} {
		l.ctl(t, append([]string{"explain", "--job", second}, args...)...).expect(t, exitUsage, "the job has its own")
	}
}

// TestHelpUsesItsOwnFlags: the flags in the examples of a help text are in its list of flags.
func TestHelpUsesItsOwnFlags(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"explain", "submit"} {
		help := command(t, "", name, "--help").expect(t, exitOK).out
		examples, flags, _ := strings.Cut(help, "Flags:")
		for _, word := range strings.Fields(examples) {
			if flag, ok := strings.CutPrefix(word, "--"); ok && !strings.Contains(flags, "--"+flag+"=") && !strings.Contains(flags, "--"+flag+" ") {
				t.Errorf("%s --help uses --%s, which it does not list", name, flag)
			}
		}
	}
}

// TestExplainExpected: a job waits for a node of a pool that has none, once the pool expects it.
// The replica that runs tells that it knows of that.
func TestExplainExpected(t *testing.T) {
	t.Parallel()
	l := start(t)
	file := filepath.Join(t.TempDir(), "pools.yaml")
	must(t, os.WriteFile(file, []byte("pools:\n- id: gpu\n  max_wait_for_node: 1h\n  expects: {services: [tts], slots: 2}\n"), 0o600))
	l.ctl(t, "submit", "tts").expect(t, exitFailure, "no_matching_node")
	l.ctl(t, "config", "apply", file).expect(t, exitOK, "version 1 is in force", "+ pool gpu")
	l.ctl(t, "explain", "tts", "--slots", "2").expect(t, exitOK, "0 of 1 node fit", "A submit now would wait for a node of pool gpu to start.")
	l.ctl(t, "explain", "tts", "--slots", "3").expect(t, exitOK, "answered no_matching_node")
	var job freeslot.JobStatus
	must(t, json.Unmarshal([]byte(l.ctl(t, "submit", "tts", "-o", "json").expect(t, exitOK).out), &job))
	l.ctl(t, "get", job.ID).expect(t, exitOK, "waiting (position 1, waits for a node of pool gpu to start)")
	l.ctl(t, "explain", "--job", job.ID).
		expect(t, exitOK, "it waits for a node of pool gpu to start", "it expires as no_matching_node at ", "it has place 1 in the queue")
}
