package boards

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declared holds the labels of each metric that a replica, an agent or an SDK declares.
type declared map[string][]string

// ofTarget are the labels that a scrape adds.
var ofTarget = []string{"job", "instance"}

var metricRow = regexp.MustCompile("(?m)^\\| `(freeslot_\\w+)` \\| (?:`([\\w,]*)`)? *\\|")

// reference reads docs/reference/metrics.md, which is written from what runs, and the types of
// replicas and agents.
func reference(t *testing.T) (labels declared, types map[string]string) {
	t.Helper()
	labels, types = declared{"up": ofTarget}, make(map[string]string)
	for _, row := range metricRow.FindAllStringSubmatch(read(t, "../../docs/reference/metrics.md"), -1) {
		labels[row[1]] = append(append(labels[row[1]], strings.Split(row[2], ",")...), ofTarget...)
	}
	for _, file := range []string{
		"../../cmd/scheduler/testdata/metrics.txt", "../../internal/nodeagent/testdata/metrics.txt",
	} {
		for line := range strings.Lines(read(t, file)) {
			if part := strings.Fields(line); len(part) > 1 {
				types[part[0]] = part[1]
			}
		}
	}
	if len(labels) < 150 {
		t.Fatalf("the reference has %d metrics; want more than 150", len(labels))
	}
	return labels, types
}

// missing returns what an expression uses that is not declared, such as "freeslot_x{cell}".
func (d declared) missing(q *Query) (all []string) {
	for _, use := range q.Uses {
		labels, ok := d[use.Metric]
		if base := Base(use.Metric); !ok && base != use.Metric {
			labels, ok = d[base]
			labels = append(slices.Clone(labels), "le")
		}
		if !ok && !strings.HasPrefix(use.Metric, "process_") && !strings.HasPrefix(use.Metric, "go_") {
			all = append(all, use.Metric)
			continue
		}
		for _, l := range use.Labels {
			if !slices.Contains(labels, l) && !slices.Contains(ofTarget, l) {
				all = append(all, use.Metric+"{"+l+"}")
			}
		}
	}
	return all
}

// TestMissing: a metric, a label and a part of a histogram that no one declares are found.
func TestMissing(t *testing.T) {
	t.Parallel()
	known, _ := reference(t)
	for expr, want := range map[string]string{
		`sum by (job, cell) (freeslot_waiting_jobs{instance="a"})`:                        "",
		`histogram_quantile(0.9, sum by (le) (rate(freeslot_assign_seconds_bucket[5m])))`: "",
		`freeslot_waiting_job`:                                 "freeslot_waiting_job",
		`sum by (pool) (freeslot_waiting_jobs)`:                "freeslot_waiting_jobs{pool}",
		`freeslot_waiting_jobs{pool="a"}`:                      "freeslot_waiting_jobs{pool}",
		`freeslot_waiting_jobs + on (pool) freeslot_held_jobs`: "freeslot_waiting_jobs{pool} freeslot_held_jobs{pool}",
		`rate(freeslot_assign_bucket[5m])`:                     "freeslot_assign_bucket",
	} {
		q, err := Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(known.missing(&q), " "); got != want {
			t.Errorf("%s misses %q; want %q", expr, got, want)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
