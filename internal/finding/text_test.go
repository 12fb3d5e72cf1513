package finding

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
)

// TestUnchecked: what a source could not check stands beside what it found, until it can.
func TestUnchecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{found: []Finding{{ID: "redis.memory", Severity: Warning}}, err: Unchecked{"this", "that"}}
		r := New([]Source{{Name: "f", Look: f.Look}}, zap.NewNop()).Look()
		if len(r.Findings) != 1 || len(r.Unknown) > 0 || !slices.Equal(r.Unchecked, []string{"this", "that"}) {
			t.Errorf("%+v; want the finding, and this and that not checked", r)
		}
		if got := r.Findings[0].Docs; got != "docs/redis.md#maxmemory" {
			t.Errorf("it leads to %s; want docs/redis.md#maxmemory", got)
		}
	})
}

// TestVerdict: the exit code tells how bad it is; what could not be checked is no trouble.
func TestVerdict(t *testing.T) {
	t.Parallel()
	warning, critical := Report{AtMS: 2, Findings: []Finding{{ID: "a", Severity: Warning}}}, Report{AtMS: 3, Findings: []Finding{{ID: "b", Severity: Critical}}}
	for want, reports := range map[int][]Report{
		0: {{}, {Unchecked: []string{"this"}}}, 1: {warning, {Unknown: []string{"a"}}}, 2: {critical, warning.And(critical)},
	} {
		for _, r := range reports {
			if code, why := r.Verdict(); code != want || (why == nil) != (want == 0) {
				t.Errorf("%+v: exit code %d, %v; want %d", r, code, why, want)
			}
		}
	}
	both := warning.And(critical)
	if both.AtMS != 2 || both.Findings[0].ID != "b" {
		t.Errorf("together %+v; want the critical one first, as of 2", both)
	}
	if got := strings.Join((&Report{Unchecked: []string{"this"}}).Lines(), "\n"); got != "could not be checked: this\nnothing is wrong" {
		t.Errorf("lines %q; want this as not checked, and that nothing is wrong", got)
	}
}

// TestDocs: each finding leads to a section that is there.
func TestDocs(t *testing.T) {
	t.Parallel()
	addresses := []string{docsOf(&Finding{ID: "nodes.none"}), docsOf(&Finding{ID: "redis.settings.0.1"})}
	for _, address := range docs {
		addresses = append(addresses, address)
	}
	for _, address := range addresses {
		file, section, _ := strings.Cut(address, "#")
		page, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		heading := regexp.MustCompile(`(?mi)^#+ ` + strings.ReplaceAll(regexp.QuoteMeta(section), "-", "[ -]") + `$`)
		if !heading.Match(page) {
			t.Errorf("%s is no heading; want that section", address)
		}
	}
}
