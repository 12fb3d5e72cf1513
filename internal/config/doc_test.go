package config_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/config"
)

// row is one line of the table in docs/configuration.md, as far as the code
// decides on it.
func row(k config.Key) string {
	cell := func(s string) string {
		if s == "" {
			return ""
		}
		return "`" + s + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", k.Path, k.Type, cell(k.Default), cell(k.Env()))
}

// TestDocumentation compares the table with the code both ways. The last cell
// is for people, and must not be empty.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	defaults := config.DefaultReplica()
	defaults.ReplicaID = ""
	var want []string
	for _, k := range config.Keys(defaults) {
		want = append(want, row(k))
	}
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, keys, _ := strings.Cut(string(data), "\n## Keys\n")
	keys, _, _ = strings.Cut(keys, "\n## ")
	var got []string
	for line := range strings.Lines(keys) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 5 || strings.TrimSpace(cells[4]) == "" {
			t.Errorf("expected five cells, the last one with a meaning: %s", line)
			continue
		}
		got = append(got, "|"+strings.Join(cells[:4], "|")+"|")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/configuration.md and the code differ (- code, + document):\n%s", diff)
	}
}

func TestExample(t *testing.T) {
	t.Parallel()
	const name = "../../deploy/scheduler.example.yaml"
	cfg, err := config.LoadReplica(config.Options{File: name, Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	// Apart from what it is to show, the example says what the defaults are.
	cfg.Pools, cfg.ReplicaID = nil, ""
	want := config.DefaultReplica()
	want.ReplicaID = ""
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error(diff)
	}
	// What is commented out works too.
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	uncommented := uncomment(string(data))
	for _, path := range []string{"/run/secrets/acme-token", "/run/secrets/operator-token"} {
		uncommented = strings.Replace(uncommented, path, writeFile(t, "secret-of-"+path), 1)
	}
	cfg, problems := loadYAML(t, uncommented)
	if problems != nil {
		t.Fatal(problems)
	}
	if len(cfg.Tokens) != 2 || len(cfg.AllowedOrigins) != 1 || cfg.Tracing.OTLPEndpoint == "" {
		t.Errorf("uncommenting did not work: %+v", cfg)
	}
}

// uncomment drops the "# " before YAML, and leaves prose alone.
func uncomment(s string) string {
	sections := []string{"tokens:", "allowed_origins:", "cache:", "tracing:"}
	inside := false
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		rest, ok := strings.CutPrefix(line, "# ")
		switch {
		case ok && slices.Contains(sections, rest):
			inside = true
		case !ok || !strings.HasPrefix(rest, " "):
			inside = false
		}
		if inside {
			line = rest
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
