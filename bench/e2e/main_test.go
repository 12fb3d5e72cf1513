package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures a very small load, so that the tool does not rot. With 8 slots for 16 jobs in
// flight some wait.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	out, markdown := filepath.Join(dir, "e2e.json"), filepath.Join(dir, "RESULTS.md")
	var stdout, stderr bytes.Buffer
	code := newTool().Run(t.Context(), []string{
		"-parts", "off", "-duration", "300ms", "-warmup", "50ms", "-replicas", "2", "-nodes", "2", "-slots", "4",
		"-load", "closed:4", "-load", "closed:16/8", "-load", "open:100", "-out", out, "-markdown", markdown,
	}, &stdout, &stderr)
	if code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	if err := result.Check(dir, markdown); err != nil {
		t.Error(err)
	}
	f, err := result.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Parts) != 1 || len(f.Parts[0].Tables[0].Rows) != 3 {
		t.Fatalf("parts are %+v", f.Parts)
	}
	table := f.Parts[0].Tables[0]
	for i, row := range table.Rows {
		for k, c := range table.Columns {
			v := row.Figures[k]
			switch c.Name {
			case "failed":
				if v[0] != 0 {
					t.Errorf("%s: %v jobs failed", row.Name, v)
				}
			case "submitted late":
				if open := i == 2; (v != nil) != open {
					t.Errorf("%s: submitted late by %v", row.Name, v)
				}
			default:
				if v == nil || v[0] <= 0 {
					t.Errorf("%s: %s is %v", row.Name, c.Name, v)
				}
			}
		}
		if assign, end := row.Figures[1], row.Figures[2]; assign[0] > end[0] {
			t.Errorf("%s: a job ends (%v us) before it is assigned (%v us)", row.Name, end[0], assign[0])
		}
	}
	// 100 jobs a second over 300 ms, every one of them counted.
	if got := table.Rows[2].Figures[7][0]; got < 29 || got > 31 {
		t.Errorf("the open loop counted %v jobs, expected 30", got)
	}
}

func TestParseLoad(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]load.Request{
		"closed:64":      {Loop: load.Closed, InFlight: 64, Batch: 1},
		"closed:1024/64": {Loop: load.Closed, InFlight: 1024, Batch: 64},
		"open:2000":      {Loop: load.Open, Rate: 2000, Batch: 1},
	} {
		if got, err := parseLoad(text); err != nil || got.request != want || got.name == "" {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "closed", "closed:0", "closed:x", "closed:10/3", "closed:4/8", "closed:4/x", "open:0", "open:10/2", "bare:1"} {
		if _, err := parseLoad(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"-duration is 1ms": {"-duration", "1ms"},
		"-nodes is 0":      {"-nodes", "0"},
		"-parts has":       {"-parts", "off,sometimes"},
		"is no load":       {"-load", "closed:0"},
	} {
		var stderr bytes.Buffer
		if code := newTool().Run(t.Context(), args, &bytes.Buffer{}, &stderr); code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%v: exit status %d: %s", args, code, &stderr)
		}
	}
}
