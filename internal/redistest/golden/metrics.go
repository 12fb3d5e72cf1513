package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	described = regexp.MustCompile(`^Desc\{fqName: "(freeslot_\w+)", .*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	labelName = regexp.MustCompile(`(\w+)="[^"]*"`)
)

// Metrics checks the name, type and labels of each metric of reg. One with labels tells its type
// only once it has a value; until then it counts as what the file says.
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
	descs := make(chan *prometheus.Desc)
	go func() { reg.Describe(descs); close(descs) }()
	var lines []string
	for desc := range descs {
		part := described.FindStringSubmatch(desc.String())
		if part == nil {
			continue // Go's, or the library's
		}
		name, labels := part[1], strings.Split(part[3], ",")
		for _, l := range labelName.FindAllStringSubmatch(part[2], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		lines = append(lines, strings.TrimSpace(fmt.Sprint(name, " ", types[name], " ", strings.Trim(strings.Join(labels, ","), ","))))
	}
	slices.Sort(lines)
	Check(t, file, strings.Join(slices.Compact(lines), "\n")+"\n")
}
