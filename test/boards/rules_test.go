package boards

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/replica/config"
)

const (
	rulesFile  = "../../deploy/prometheus/freeslot.rules.yaml"
	testsFile  = "../../deploy/prometheus/tests/freeslot.test.yaml"
	runbookURL = "https://github.com/freeslot/freeslot/blob/main/docs/runbook.md#"
)

func rules(t *testing.T) []Rule {
	t.Helper()
	all, err := Rules(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// knownTo returns what is declared, with what the recording rules make of it.
func knownTo(t *testing.T, all []Rule) declared {
	known, _ := reference(t)
	for _, r := range all {
		if r.Record == "" {
			continue
		}
		for _, use := range r.Query.Uses {
			known[r.Name] = append(known[r.Name], use.Labels...)
		}
	}
	return known
}

// TestRules: each expression parses and uses only metrics and labels that exist. Each alert says
// what is lost and where to look, and its section of the runbook has its severity and duration.
func TestRules(t *testing.T) {
	t.Parallel()
	all, runbook := rules(t), read(t, "../../docs/runbook.md")
	known := knownTo(t, all)
	var alerts []string
	for _, r := range all {
		if missing := known.missing(&r.Query); missing != nil {
			t.Errorf("%s uses %v, which no process declares", r.Name, missing)
		}
		if r.Alert == "" {
			continue
		}
		alerts = append(alerts, r.Name)
		severity := r.Labels["severity"]
		if severity != "critical" && severity != "warning" {
			t.Errorf("%s has severity %q; want critical or warning", r.Name, severity)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say what is lost (summary) and where to look (description)", r.Name)
		}
		if got, want := r.Annotations["runbook_url"], runbookURL+strings.ToLower(r.Name); got != want {
			t.Errorf("%s leads to %s; want %s", r.Name, got, want)
		}
		when := "at once"
		if r.For != 0 {
			when = "after " + r.For.String()
		}
		if title := fmt.Sprintf("\n### %s\n\n`%s`, %s\n", r.Name, severity, when); !strings.Contains(runbook, title) {
			t.Errorf("docs/runbook.md has no section that begins with %q", title)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(runbook, -1) {
		if !slices.Contains(alerts, m[1]) {
			t.Errorf("docs/runbook.md has a section %s, and there is no such alert", m[1])
		}
	}
}

// TestChartRules: the Helm chart, which can read only its own folder, has the same alerts.
func TestChartRules(t *testing.T) {
	t.Parallel()
	const chart = "deploy/helm/freeslot/files/freeslot.rules.yaml"
	if read(t, "../../"+chart) != read(t, rulesFile) {
		t.Errorf("%s differs from the alerts; want a copy: cp deploy/prometheus/freeslot.rules.yaml %s", chart, chart)
	}
}

// TestThresholds: an alert and the finding about the same thing begin at the same value.
func TestThresholds(t *testing.T) {
	t.Parallel()
	findings := config.DefaultReplica().Findings
	all := rules(t)
	for name, want := range map[string]float64{
		"FreeslotQueueLate":           findings.OldestWait.Seconds(),
		"FreeslotCertificateExpiring": findings.Expiry.Seconds(),
		"FreeslotRedisMemory":         findings.RedisMemory,
		"FreeslotRedisFull":           dispatch.MemoryLimit,
	} {
		i := slices.IndexFunc(all, func(r Rule) bool { return r.Name == name })
		if i < 0 || !slices.Contains(all[i].Query.Numbers, want) {
			t.Errorf("%s does not begin at %g, as its finding does", name, want)
		}
	}
}

// TestEachAlertIsTested: promtool's tests make each alert fire, and keep it quiet.
func TestEachAlertIsTested(t *testing.T) {
	t.Parallel()
	text := read(t, testsFile)
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		for _, outcome := range []string{" fires\n", " is quiet\n"} {
			_, test, _ := strings.Cut(text, "- name: "+r.Name+outcome)
			test, _, _ = strings.Cut(test, "- name: ")
			fires := strings.Contains(test, `exp_samples: [{labels: 'ALERTS{`)
			if !strings.Contains(test, `alertname="`+r.Name+`"`) || fires != (outcome == " fires\n") {
				t.Errorf("%s has no test %q with that outcome", r.Name, r.Name+strings.TrimSpace(outcome))
			}
		}
	}
}

// promtool returns what Prometheus' tool says, and whether it was content.
func promtool(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("this test needs promtool; make deps installs it: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err == nil
}

// TestAlertsFire runs promtool's tests: each alert on planted series.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", testsFile}} {
		if out, ok := promtool(t, args...); !ok {
			t.Errorf("promtool %v: %s", args, out)
		}
	}
}

// absent are the metrics of alerts that a healthy system without TLS, sources of lists and replicas
// of Redis does not have, or not before the first event.
var absent = []string{
	"freeslot_list_source_runs_total", "freeslot_redis_call_errors_total", "freeslot_replication_waits_total",
	"freeslot_tls_certificate_expiry_timestamp_seconds", "freeslot_tls_refused_total", "freeslot_token_file_problems",
}

// recorded are the values of each series of the recording.
type recorded map[string][]string

func recording(t *testing.T) recorded {
	t.Helper()
	rec := make(recorded)
	for line := range strings.Lines(read(t, "testdata/healthy.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndex(line, "} ") + 1
		rec[line[:end]] = strings.Fields(line[end:])
	}
	return rec
}

// quiet writes promtool's test that no alert fires at any of these minutes if it goes on as
// recorded: counters grow on, and gauges repeat.
func (rec recorded) quiet(t *testing.T, minutes int) string {
	t.Helper()
	const interval = 15 * time.Second
	rulesPath, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintf(
		&text, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n  - interval: %s\n    input_series:\n", rulesPath,
		interval,
	)
	for series, values := range rec {
		fmt.Fprintf(
			&text, "      - {series: '%s', values: '%s'}\n", series,
			strings.Join(repeated(t, series, values, minutes*int(time.Minute/interval)+1), " "),
		)
	}
	text.WriteString("    promql_expr_test:\n")
	for minute := 1; minute <= minutes; minute++ {
		fmt.Fprintf(&text, "      - {expr: 'ALERTS{alertstate=\"firing\"}', eval_time: %dm, exp_samples: []}\n", minute)
	}
	file := filepath.Join(t.TempDir(), "quiet.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var counter = regexp.MustCompile(`^\w+_(total|bucket|count|sum)\{`)

func repeated(t *testing.T, series string, values []string, count int) []string {
	t.Helper()
	last := len(values) - 1
	all := make([]string, count)
	for i := range all {
		all[i] = values[i%last]
		if all[i] == "_" || !counter.MatchString(series) {
			continue
		}
		var now, first, end float64
		if _, err := fmt.Sscan(
			all[i]+" "+strings.ReplaceAll(values[0], "_", "0")+" "+values[last], &now, &first, &end,
		); err != nil {
			t.Fatalf("%s: %v", series, err)
		}
		all[i] = fmt.Sprint(now + float64(i/last)*(end-first))
	}
	return all
}

// TestHealthyHour: no alert fires in a healthy system, and the recording of one has the metrics
// that alerts look at.
func TestHealthyHour(t *testing.T) {
	t.Parallel()
	rec := recording(t)
	for _, r := range rules(t) {
		for _, use := range r.Query.Uses {
			if !strings.HasPrefix(use.Metric, "freeslot_") || slices.Contains(absent, use.Metric) {
				continue
			}
			has := false
			for series := range rec {
				has = has || strings.HasPrefix(series, use.Metric+"{")
			}
			if !has {
				t.Errorf(
					"%s uses %s, which the recording does not have; want one made anew by test/boards/record", r.Name, use.Metric,
				)
			}
		}
	}
	if out, ok := promtool(t, "test", "rules", rec.quiet(t, 60)); !ok {
		t.Errorf("an alert fires in a healthy hour: %.2000s", out)
	}
	for series := range rec { // the hour is not so quiet that nothing could be heard
		if strings.HasPrefix(series, "freeslot_cache_unreachable{") {
			rec[series] = slices.Repeat([]string{"1"}, len(rec[series]))
		}
	}
	if out, ok := promtool(t, "test", "rules", rec.quiet(t, 5)); ok || !strings.Contains(out, "FreeslotRedisUnreachable") {
		t.Errorf("no cell answers in these minutes, and promtool says: %.500s; want an alert", out)
	}
}
