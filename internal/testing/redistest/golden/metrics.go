package golden

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	// A description shows its parts only as text.
	described = regexp.MustCompile(
		`^Desc\{fqName: "(freeslot_\w+)", help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`,
	)
	labelName = regexp.MustCompile(`(\w+)="[^"]*"`)
)

// Metric describes a metric. Labels are sorted and separated by commas.
type Metric struct{ Name, Labels, Help string }

// Described returns freeslot's own metrics of reg, sorted.
func Described(t *testing.T, reg *prometheus.Registry) []Metric {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() { reg.Describe(descs); close(descs) }()
	var out []Metric
	for desc := range descs {
		part := described.FindStringSubmatch(desc.String())
		if part == nil {
			continue // a metric of Go or of the library
		}
		help, err := strconv.Unquote(part[2])
		if err != nil {
			t.Error(desc, err)
		}
		labels := strings.Split(part[4], ",")
		for _, l := range labelName.FindAllStringSubmatch(part[3], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		out = append(out, Metric{part[1], strings.Trim(strings.Join(labels, ","), ","), help})
	}
	slices.SortFunc(out, func(a, b Metric) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Labels, b.Labels), strings.Compare(a.Help, b.Help))
	})
	return slices.Compact(out)
}

// Metrics checks the name, type and labels of each metric of reg. The type of a metric with labels
// is known only once it has a value; until then the type in the file counts.
func Metrics(t *testing.T, file string, reg *prometheus.Registry) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	types := make(map[string]string)
	before, _ := os.ReadFile(filepath.Join("testdata", file)) // a new one is written with -update
	for line := range strings.Lines(string(before)) {
		if part := strings.Fields(line); len(part) > 1 {
			types[part[0]] = part[1]
		}
	}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	var lines []string
	for _, m := range Described(t, reg) {
		lines = append(lines, strings.TrimSpace(m.Name+" "+types[m.Name]+" "+m.Labels))
	}
	Check(t, file, strings.Join(lines, "\n")+"\n")
}
