package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestListsSource: a source from its first run to its end, as an operator sees it: in the commands,
// the findings, the audit and the metrics.
func TestListsSource(t *testing.T) {
	t.Parallel()
	file := listFile(t, "vip.csv", "a\nb\nc\n")
	l := startWith(t, func(c *config.Replica) {
		c.Lists.Sources = map[string]config.ListSource{"crm": {Kind: "file", Path: file}}
	})
	ctl := func(args ...string) result {
		t.Helper()
		return l.ctl(t, append([]string{"lists", "source"}, args...)...)
	}
	shows := func(want string) {
		t.Helper()
		waittest.Until(t, "the source to show "+want, func() bool { return strings.Contains(ctl("show", "vip").out, want) })
	}
	serves := func() {
		t.Helper()
		out := l.ctl(t, "lists", "export", "vip", "--bare", "--format", "txt").expect(t, exitOK).out
		if got := sorted(out); got != "a b c" {
			t.Errorf("the list has %s; want a b c", got)
		}
	}
	ctl("set", "vip", "crm").expect(t, exitFailure, "not_found")
	l.ctl(t, "lists", "apply", "vip").expect(t, exitOK)
	ctl("show", "vip").expect(t, exitFailure, "not_found", "list vip has no source")
	ctl("set", "vip", "other").expect(t, exitFailure, "invalid_argument", `source is "other"`, `["crm"]`)
	ctl("set", "vip", "crm", "--every", "never").expect(t, exitFailure, "invalid_argument", "cron")
	ctl("set", "vip", "crm", "--every", "@daily", "--time-zone", "Mars").expect(t, exitFailure, "time_zone")
	ctl("set", "vip", "crm", "--every", "@daily", "--note", "from the CRM").
		expect(t, exitOK, "list vip comes from source crm, @daily; next run")
	ctl("run", "vip").expect(t, exitOK, "the source of list vip runs now")
	shows("served")
	ctl("show", "vip").expect(t, exitOK, "BEGAN", "r1")
	ctl("ls").expect(t, exitOK, "sources of this replica: crm", "vip   crm     @daily", "served")
	serves()

	must(t, os.WriteFile(file, []byte("a\n"), 0o600)) // less than half
	ctl("run", "vip").expect(t, exitOK)
	shows("held: ")
	if status := l.ctl(t, "status").out; !strings.Contains(status, "1 list has no new version from the source; vip held") {
		t.Errorf("status: %s; want the list whose version is held", status)
	}
	must(t, os.Remove(file))
	ctl("run", "vip").expect(t, exitOK)
	shows("failed: ")
	serves()
	l.ctl(t, "audit").expect(t, exitOK, "run-list-source", "source/crm", "version 1, 3 lines", "held", "failed",
		"set-list-source", "crm @daily")
	metrics := l.metrics(t)
	for _, result := range []string{"served", "held", "failed"} {
		want := `freeslot_list_source_runs_total{result="` + result + `",source="crm"} 1`
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics of %d bytes; want %s among them", len(metrics), want)
		}
	}
	ctl("unset", "vip").expect(t, exitOK, "list vip has no source any more")
	ctl("unset", "vip").expect(t, exitFailure, "not_found")
	ctl("run", "vip").expect(t, exitFailure, "not_found")
}

// metrics returns what the replica exposes.
func (l *live) metrics(t *testing.T) string {
	t.Helper()
	answer, err := http.Get("http://" + l.server.Addr() + "/metrics")
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return string(text)
}
