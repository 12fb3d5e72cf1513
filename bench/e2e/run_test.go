package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/freeslot/freeslot/bench/e2e/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/report"
)

// TestRun measures a very small load, so that the tool does not rot. With 8 slots for 16 jobs in flight some wait.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "e2e.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"-duration", "300ms", "-warmup", "50ms", "-replicas", "2", "-nodes", "2", "-slots", "4", "-aof", "off",
		"-scenario", "closed:4", "-scenario", "closed:16/8", "-scenario", "open:100", "-out", out, "-markdown", markdown,
	}, &stdout, &stderr)
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	if err := report.Check(dir, markdown); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r := new(result.Results)
	if err := measure.Decode(out, data, r); err != nil {
		t.Fatal(err)
	}
	if len(r.Systems) != 1 || len(r.Systems[0].Scenarios) != 3 {
		t.Fatalf("results are of %+v", r.Systems)
	}
	for _, m := range r.Systems[0].Scenarios {
		switch {
		case m.Jobs == 0, m.JobsPerSecond <= 0, m.Loaded.Count == 0:
			t.Errorf("%s: nothing was counted: %+v", m.Scenario, m)
		case len(m.Refused) > 0, len(m.Failed) > 0:
			t.Errorf("%s: refused %v, failed %v", m.Scenario, m.Refused, m.Failed)
		case m.Assign.Count != m.Jobs, m.Result.Count != m.Jobs:
			t.Errorf("%s: %d jobs, %d assignments, %d results", m.Scenario, m.Jobs, m.Assign.Count, m.Result.Count)
		case m.Assign.P50 > m.Result.P50:
			t.Errorf("%s: a job ends (%d us) before it is assigned (%d us)", m.Scenario, m.Result.P50, m.Assign.P50)
		case m.Redis.ScriptPerJob <= 0, m.Redis.CPUPerJob <= 0:
			t.Errorf("%s: Redis did nothing: %+v", m.Scenario, m.Redis)
		}
	}
	// 100 jobs a second over 300 ms, every one of them counted.
	if got := r.Systems[0].Scenarios[2].Jobs; got < 29 || got > 31 {
		t.Errorf("the open loop counted %d jobs, expected 30", got)
	}
}
