package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/pool"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/worker"
)

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pools.yaml")
	must(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

const germanPool = `
enabled: true
pools:
  - id: german
    source_languages: [en]
    target_languages: [de]
    labels: {zone: eu}
`

func TestConfigLife(t *testing.T) {
	t.Parallel()
	l := start(t)
	l.ctl(t, "config", "show").expect(t, exitOK, "from the replica's own file", "version: 0", "enabled: false")
	l.ctl(t, "config", "history").expect(t, exitOK, "VERSION")
	file := writeFile(t, germanPool)
	l.ctl(t, "config", "diff", file).expect(t, exitOK, "compared with the replica's own file; nothing was changed", "~ enabled: false -> true", "+ pool german", "1 node joins pool german: node-1")
	l.ctl(t, "config", "diff", "--exit-code", file).expect(t, exitFailure, "+ pool german", "differ")
	inert := writeFile(t, strings.Replace(germanPool, "enabled: true", "enabled: false", 1))
	l.ctl(t, "config", "diff", inert).expect(t, exitOK, "+ pool german", "the pools have no members and restrict nothing: enabled is false")
	l.ctl(t, "config", "apply", file, "--dry-run").expect(t, exitOK, "nothing was changed")
	l.ctl(t, "config", "apply", file, "--note", "the first", "--author", "alice").expect(t, exitOK, "version 1 is in force", "+ pool german")
	l.ctl(t, "config", "apply", file).expect(t, exitOK, "nothing to change: version 1 says the same")
	l.ctl(t, "config", "diff", "--exit-code", file).expect(t, exitOK, "nothing to change")
	l.ctl(t, "nodes").expect(t, exitOK, "german")

	// The output of show is a file for apply, which refuses it after another change.
	shown := l.ctl(t, "config", "show").expect(t, exitOK, "# version 1, by default/alice at ", ": the first", "\nversion: 1\n", "source_languages: [en]", "zone: eu")
	edited := strings.Replace(shown.out, "zone: eu", "zone: us", 1)
	got := command(t, edited, "--server", l.server.Addr(), "config", "apply", "-", "--author", "bob")
	got.expect(t, exitOK, "version 2 is in force", `~ pool german: labels: {"zone":"eu"} -> {"zone":"us"}`, "1 node leaves pool german: node-1")
	faster := strings.Replace(shown.out, "german", "other", 1)
	command(t, faster, "--server", l.server.Addr(), "config", "apply", "-").expect(t, exitFailure, "conflict: version is 1, but the configuration is at 2, by default/bob")
	l.ctl(t, "config", "apply", file, "--version", "1").expect(t, exitFailure, "conflict")
	old := writeFile(t, faster)
	l.ctl(t, "config", "diff", old).expect(t, exitOK, "+ pool other", "apply would refuse this file: its version is 1, and the configuration is at 2")
	l.ctl(t, "config", "diff", "--exit-code", old).expect(t, exitFailure, "apply would refuse", "differ")
	current := writeFile(t, strings.Replace(faster, "version: 1", "version: 2", 1))
	if got := l.ctl(t, "config", "diff", current).expect(t, exitOK, "+ pool other"); got.err != "" {
		t.Error(got.err)
	}

	l.ctl(t, "config", "rollback", "1", "--dry-run").expect(t, exitOK, "compared with version 2")
	l.ctl(t, "config", "rollback", "1", "--seen", "1").expect(t, exitFailure, "conflict", "version is 1, but the configuration is at 2")
	l.ctl(t, "config", "rollback", "1", "--seen", "2", "--note", "bob was wrong", "--author", "alice").expect(t, exitOK, "version 3 is in force", "1 node joins pool german")
	l.ctl(t, "config", "rollback", "9").expect(t, exitFailure, "not_found")
	history := l.ctl(t, "config", "history").expect(t, exitOK, "bob was wrong", "default/bob")
	if lines := strings.Split(strings.TrimSpace(history.out), "\n"); len(lines) != 4 || !strings.HasPrefix(lines[1], "3 ") || !strings.Contains(lines[1], "  rollback to 1  bob was wrong") || !strings.Contains(lines[2], "  apply  ") {
		t.Error(history.out)
	}
	l.ctl(t, "config", "show", "--version", "2").expect(t, exitOK, "version 2 of the history, by default/bob", "zone: us")
	l.ctl(t, "config", "show", "--version", "9").expect(t, exitFailure, "not_found")
	var state pool.PoolConfig
	if got := l.ctl(t, "config", "show", "-o", "json"); json.Unmarshal([]byte(got.out), &state) != nil || state.Version != 3 || state.Restores != 1 {
		t.Error(got.out)
	}
	l.ctl(t, "config", "apply", file, "-o", "json").expect(t, exitOK, `"unchanged": true`)
	l.ctl(t, "config", "history", "-o", "json").expect(t, exitOK, `"version": 3`)
	asJSON := writeFile(t, `{"enabled": true, "pools": []}`)
	l.ctl(t, "config", "apply", asJSON).expect(t, exitOK, "version 4 is in force", "- pool german")
}

// TestConfigDiffExitCode: the exit codes are those of diff(1).
func TestConfigDiffExitCode(t *testing.T) {
	t.Parallel()
	l := start(t)
	diff := []string{"config", "diff", "--exit-code"}
	l.ctl(t, append(diff, writeFile(t, germanPool))...).expect(t, 1, "the configurations differ")
	l.ctl(t, append(diff, writeFile(t, "mode: round"))...).expect(t, 2, "invalid_argument")
	l.ctl(t, append(diff, "/nowhere")...).expect(t, 2, "no such file")
	command(t, "", append([]string{"--server", "127.0.0.1:1"}, append(diff, writeFile(t, germanPool))...)...).expect(t, 2, "cannot reach the scheduler")
	command(t, "", append([]string{"--token-file", "/nowhere"}, append(diff, writeFile(t, germanPool))...)...).expect(t, 2, "/nowhere")
	l.ctl(t, "config", "apply", writeFile(t, germanPool)).expect(t, exitOK)
	l.ctl(t, append(diff, writeFile(t, germanPool))...).expect(t, exitOK, "nothing to change")
	l.ctl(t, "config", "diff", writeFile(t, "mode: round")).expect(t, exitFailure, "invalid_argument")
}

// TestConfigDiffWithoutDocument: a file that equals the configuration in force still changes
// something if Redis has another document, or none.
func TestConfigDiffWithoutDocument(t *testing.T) {
	t.Parallel()
	l := start(t)
	same := writeFile(t, "enabled: false")
	l.ctl(t, "config", "diff", same).expect(t, exitOK, "compared with the replica's own file", "no differences; there is no configuration in Redis, apply writes this one")
	file := writeFile(t, germanPool)
	l.ctl(t, "config", "apply", file).expect(t, exitOK)
	client := redistest.Shared(t).Client(t)
	key := script.Layout{Prefix: l.prefix}.Key("config:phase3", "")
	must(t, client.Do(t.Context(), client.B().Set().Key(key).Value(`{"mode":"round"}`).Build()).Error())
	got := l.ctl(t, "config", "diff", file).expect(t, exitOK, "what is in Redis is broken and not in force: config.mode", "apply replaces it",
		"compared with what is in force", "no differences to what is in force")
	if strings.Contains(got.out, "version 1") {
		t.Error(got.out)
	}
	l.ctl(t, "config", "diff", "--exit-code", file).expect(t, exitFailure, "differ")
	l.ctl(t, "config", "diff", same).expect(t, exitOK, "apply replaces it", "- pool german")
	l.ctl(t, "config", "show").expect(t, exitOK, "somebody edited it", "is not in force: config.mode")
	l.ctl(t, "config", "apply", file).expect(t, exitOK, "version 2 is in force", "it replaces what was broken in Redis")
	l.ctl(t, "config", "diff", "--exit-code", file).expect(t, exitOK, "nothing to change: version 2")
}

// TestDocsFindTheDocument: the pattern in the documentation finds the key with any tag, and no key
// of the history.
func TestDocsFindTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "pools.md"))
	must(t, err)
	_, pattern, _ := strings.Cut(string(text), "\nredis-cli --scan --pattern '")
	pattern, _, found := strings.Cut(pattern, "'")
	for cells := 1; cells <= cell.MaxCells && found; cells++ {
		for _, cluster := range []bool{false, true} {
			layout := script.Layouts("scheduler", cells, cluster)[0]
			document, history := layout.Key("config:phase3", ""), layout.Key("config:history", "")
			if found, err := path.Match(pattern, document); !found || err != nil {
				t.Errorf("%s does not find %s", pattern, document)
			}
			if found, _ := path.Match(pattern, history); found {
				t.Errorf("%s finds %s", pattern, history)
			}
		}
	}
	if two := "redis-cli -c DEL '" + script.Layouts("scheduler", 2, false)[0].Key("config:phase3", "") + "'"; !found || !strings.Contains(string(text), two) {
		t.Errorf("the documentation has the pattern %q, and not %q", pattern, two)
	}
}

func TestConfigRefusals(t *testing.T) {
	t.Parallel()
	l := start(t, config.Token{Token: "acme-token", Tenant: "acme", Role: identity.Client}, config.Token{Token: "root-token", Tenant: "ops", Role: identity.Operator})
	bad := writeFile(t, "mode: round\npolcy: x\npools:\n  - {id: a b}\n  - {id: c, services: tts, labels: {zone: 7}}\n")
	root := func(args ...string) result {
		return l.ctl(t, append([]string{"--token", "root-token", "config"}, args...)...)
	}
	root("apply", bad).expect(t, exitFailure, "invalid_argument", "config.mode", "config.polcy", "expected enabled, mode, policy", "config.pools[0].id", "config.pools[1].services", "config.pools[1].labels.zone")
	root("show").expect(t, exitOK, "version: 0")
	l.ctl(t, "--token", "acme-token", "config", "show").expect(t, exitFailure, "permission_denied", "get-config is for viewer, operator, admin")
	l.ctl(t, "config", "show").expect(t, exitFailure, "unauthenticated")
	for content, want := range map[string]string{
		"":                       "is empty",
		" \n":                    "is empty",
		"- a":                    `is a list, expected a mapping as "schedctl config show" prints it`,
		"a: [":                   "pools.yaml",
		"a: 1\n---\nb: 2":        "more than one YAML document",
		"version: x":             "expected a whole number",
		"version: -1":            "expected a whole number",
		"pools: {[1]: 2}":        "pools.yaml",
		"enabled: true\n1: true": "pools.yaml",
	} {
		if got := root("apply", writeFile(t, content)); got.code != exitUsage || !strings.Contains(got.err, want) {
			t.Errorf("%q: exit code %d: %s", content, got.code, got.err)
		}
	}
	root("apply", "/nowhere").expect(t, exitFailure, "/nowhere")
	root("apply").expect(t, exitUsage)
	root("rollback", "x").expect(t, exitUsage)
	root().expect(t, exitUsage)
	root("apply", writeFile(t, "enabled: true"), "--author", "carol").expect(t, exitOK, "version 1")
	root("show").expect(t, exitOK, "by ops/carol")
}

// TestConfigMovesJobs: right after an apply through this replica, a job goes to a node of another
// pool.
func TestConfigMovesJobs(t *testing.T) {
	t.Parallel()
	l := start(t)
	w, err := worker.New(worker.Config{
		RedisURL: l.url, KeyPrefix: l.prefix,
		Node: freeslot.Node{
			ID: "node-2", MaxConcurrency: 4, Labels: map[string]string{"zone": "us"},
			Languages: freeslot.Languages{ASR: []string{"en"}, TTS: []string{"de"}},
		},
	})
	must(t, err)
	w.Handle("echo", func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil })
	must(t, w.Start(t.Context()))
	t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end()
		_ = w.Stop(ended)
	})
	l.ctl(t, "nodes", "node-2", "--checked").expect(t, exitOK, "fresh") // the replica knows it
	file := writeFile(t, germanPool)
	american := writeFile(t, strings.Replace(germanPool, "zone: eu", "zone: us", 1))
	for i := range 6 {
		name, want := file, "node-1"
		if i%2 == 1 {
			name, want = american, "node-2"
		}
		l.ctl(t, "config", "apply", name).expect(t, exitOK, "is in force")
		for range 4 {
			got := l.ctl(t, "submit", "echo", "1", "--source", "en", "--target", "de", "--wait", "-o", "json").expect(t, exitOK)
			var status freeslot.JobStatus
			if err := json.Unmarshal([]byte(got.out), &status); err != nil || status.Node != want {
				t.Fatalf("the job ran on %s, expected %s: %v", status.Node, want, err)
			}
		}
	}
}

// TestConfigFileRoundTrip: apply reads the output of show, for all texts.
func TestConfigFileRoundTrip(t *testing.T) {
	t.Parallel()
	labels := map[string]string{}
	for i, v := range []string{"true", "7", "0x1f", "1e3", "null", "~", "", " x ", "a: b", "# no comment", "- a", "2024-01-01", "<&>", "é\u00a0—", `"quoted"`, "'", "[a]", "{a}", "yes", "|", "a\\nb"} {
		labels[fmt.Sprint("label-", i)] = v
	}
	cfg := &selection.Config{Enabled: true, AffinityLoadFactor: 2, Pools: selection.Pools{
		{ID: "007", Services: []string{"asr@>=1.2 <2"}, SourceLanguages: []string{"no", "zh-Hant"}, Labels: labels}, {ID: "null", Members: []string{"1.0"}},
	}}
	want := string(pool.Encode(cfg))
	var out bytes.Buffer
	version := uint64(7)
	must(t, printYAML(&out, &version, json.RawMessage(want)))
	content, seen, err := (&app{environment: &environment{in: &out}}).readConfig("-")
	must(t, err)
	got, err := pool.Decode(content)
	must(t, err)
	if string(pool.Encode(got)) != want || seen == nil || *seen != version {
		t.Errorf("%s\n%s; want string(pool.Encode(got)) == %v, seen != nil, *seen == %v", pool.Encode(got), want, want, version)
	}
}
