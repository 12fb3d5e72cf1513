package agent

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/config"
)

// TestDocumentation compares the table of docs/nodeagent.md with the code both ways.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	// Defaults of services are given after loading, and that of the id by the host.
	given := map[string]string{
		"node.id": "the host's name", "services[].command.pass_env": "see above",
		"services[].http.timeout": "`1m`", "services[].http.output": "`auto`",
		"services[].command.timeout": "`1m`", "services[].command.kill_grace": "`5s`",
		"services[].command.input": "`json`", "services[].command.output": "`auto`",
		"metrics.enabled": "see above", "metrics.disk.paths": "`/`",
		"metrics.commands[].pass_env": "see above", "metrics.commands[].cost": "`high`",
		"metrics.commands[].interval": "by `cost`", "metrics.commands[].timeout": "by `cost`",
		"services[].check.interval": "`5s`", "services[].check.timeout": "`2s`", "services[].check.rise": "`2`", "services[].check.fall": "`3`",
		"services[].check.http.min_status": "`200`", "services[].check.http.max_status": "`299`",
	}
	if DefaultTimeout != time.Minute || DefaultKillGrace != 5*time.Second {
		t.Error("the document and this test have other defaults")
	}
	quoted := func(s string) string {
		if s == "" {
			return ""
		}
		return "`" + s + "`"
	}
	var want, got []string
	for _, k := range config.Keys(DefaultConfig()) {
		shown, ok := given[k.Path]
		if !ok {
			shown = quoted(k.Default)
		}
		want = append(want, strings.Join([]string{"", " `" + k.Path + "` ", " " + k.Type + " ", " " + shown + " ", " " + quoted(k.Env()) + " ", ""}, "|"))
	}
	data, err := os.ReadFile("../../docs/nodeagent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, keys, _ := strings.Cut(string(data), "\n## Keys\n")
	for line := range strings.Lines(keys) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) != 7 || strings.TrimSpace(cells[5]) == "" {
			t.Errorf("expected five cells, the last one with a meaning: %s", line)
			continue
		}
		got = append(got, strings.Join(cells[:5], "|")+"|")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/nodeagent.md and the code differ (- code, + document):\n%s", diff)
	}
}

// TestStopLimitIsDocumented: a service manager that waits as long as the documents say does not kill an
// agent that stops as it should.
func TestStopLimitIsDocumented(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Services = []Service{{Name: "a", Command: &Command{KillGrace: 20 * time.Second}}}
	more := cfg.StopLimit() - cfg.StopTimeout - cfg.Services[0].Command.KillGrace
	for _, file := range []string{"../../docs/nodeagent.md", "../../deploy/nodeagent.service"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`stop_timeout, the longest kill_grace and (\d+) s more`).FindSubmatch(data)
		if found == nil {
			t.Errorf("%s does not say how long a stop takes", file)
			continue
		}
		if n, err := strconv.Atoi(string(found[1])); err != nil || time.Duration(n)*time.Second < more {
			t.Errorf("%s says %s s more, the agent takes up to %s (%v)", file, found[1], more, err)
		}
	}
}
