package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a fleet of 30 nodes with 60 slots, 70 % busy, with delays that are always the same.
func small() config {
	cfg := config{
		seed: 1, replicas: 3, rate: 1000, meanDuration: 42 * time.Millisecond, jobs: 3000, warmUp: 200, prefill: true,
		eventDelay: fixed(1000), roundTrip: fixed(600), replyDelay: fixed(800), heartbeat: 100 * time.Millisecond,
	}
	for i := range 30 {
		cfg.slots = append(cfg.slots, 1+i%3)
	}
	return cfg
}

func mustSimulate(t *testing.T, cfg config) *outcome {
	t.Helper()
	o, err := simulate(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.leaks) > 0 || o.counts.overCommits != 0 {
		t.Fatalf("%d over-commits, left behind: %q", o.counts.overCommits, o.leaks)
	}
	return o
}

// someTrace is a made-up trace: bursts, and tokens of 10 to 100.
func someTrace() []request {
	var all []request
	at := time.Duration(0)
	for i := range 400 {
		at += time.Duration(1+i*i%7) * 100 * time.Millisecond
		all = append(all, request{at - 100*time.Millisecond, 10 + i*37%91})
	}
	all[0].at = 0
	return all
}

// near fails unless got is within a share of want.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*math.Abs(want) {
		t.Errorf("%s: got %.4g, want %.4g within %.0f %%", what, got, want, within*100)
	}
}

// inputFiles writes a made-up trace and node list.
func inputFiles(t *testing.T) (requests, nodes string) {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	for _, r := range someTrace() {
		at := time.Date(2023, 11, 16, 18, 0, 0, 0, time.UTC).Add(r.at)
		fmt.Fprintf(&b, "%s,100,%d\n", at.Format("2006-01-02 15:04:05.0000000"), r.tokens)
	}
	requests = write(t, dir, "trace.csv", b.String())
	b.Reset()
	b.WriteString("sn,cpu_milli,memory_mib,gpu,model\n")
	for i := range 40 {
		fmt.Fprintf(&b, "n-%d,64000,262144,%d,T4\n", i, 1<<(i%4))
	}
	return requests, write(t, dir, "nodes.csv", b.String())
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRun makes all parts small. Any number of simulations at once comes to the same.
func TestRun(t *testing.T) {
	t.Parallel()
	requests, nodes := inputFiles(t)
	call := func(want int, args ...string) (*result.File, string) {
		t.Helper()
		dir := t.TempDir()
		out, markdown := filepath.Join(dir, "sim.json"), filepath.Join(dir, "R.md")
		var said bytes.Buffer
		if code := newTool().Run(t.Context(), append(args, "-out", out, "-markdown", markdown), &said, &said); code != want {
			t.Fatalf("%q: exit status %d, expected %d: %s", args, code, want, &said)
		}
		f, err := result.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Parts {
			for _, plot := range p.Plots {
				svg, err := os.ReadFile(filepath.Join(dir, plot.File))
				if err != nil || !bytes.Contains(svg, []byte("<svg")) {
					t.Errorf(`%s: %v; want no error, bytes.Contains(svg, []byte("<svg"))`, plot.File, err)
				}
			}
		}
		return f, said.String()
	}
	one, _ := call(0, "-short", "-trace", requests, "-nodes", nodes, "-parallel", "1")
	three, _ := call(0, "-short", "-trace", requests, "-nodes", nodes, "-parallel", "3")
	if len(one.Parts) != 3 {
		t.Fatalf("parts are %+v", one.Parts)
	}
	for i, p := range one.Parts {
		if diff := cmp.Diff(p.Tables, three.Parts[i].Tables); diff != "" {
			t.Errorf(`%s: %s; want diff == ""`, p.Name, diff)
		}
		for k := range p.Targets {
			if !p.Targets[k].Met() {
				t.Errorf("%s: %s: %v; want p.Targets[k].Met()", p.Name, p.Targets[k].What, *p.Targets[k].Measured)
			}
		}
		if len(p.Tables[0].Rows) < 2 || len(p.Tables[0].Columns) < 2 {
			t.Errorf("%s: the table is %+v", p.Name, p.Tables[0])
		}
	}
	for want, args := range map[string][]string{"both are needed": {"-trace", requests}, "at least 1": {"-trace", requests, "-nodes", nodes, "-parallel", "0"}} {
		if _, said := call(2, args...); !strings.Contains(said, want) {
			t.Errorf("%q: %s; want strings.Contains(said, want)", args, said)
		}
	}
	for want, args := range map[string][]string{"no such file": {"-trace", requests + "x", "-nodes", nodes}, "line 1": {"-trace", nodes, "-nodes", nodes}} {
		if _, said := call(1, args...); !strings.Contains(said, want) {
			t.Errorf("%q: %s; want strings.Contains(said, want)", args, said)
		}
	}
}
