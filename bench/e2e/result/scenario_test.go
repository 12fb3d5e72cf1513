package result

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseScenario(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Scenario{
		"closed:1":       {Loop: Closed, Concurrency: 1, Batch: 1},
		"closed:1024/64": {Loop: Closed, Concurrency: 1024, Batch: 64},
		"open:2000":      {Loop: Open, Rate: 2000, Batch: 1},
	} {
		got, err := ParseScenario(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		if got.String() != text {
			t.Errorf("%s is written %s", text, got)
		}
	}
}

func TestParseScenarioRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              `"" is not a whole number`,
		"closed":        `"" is not a whole number`,
		"closed:x":      `"x" is not a whole number`,
		"closed:0":      "expected 1 to 10000",
		"closed:10001":  "expected 1 to 10000",
		"closed:64/":    `"" is not a whole number`,
		"closed:64/0":   "expected 1 to 1000",
		"closed:100/64": "cannot be submitted by 64",
		"open:0":        "expected 1 to 200000",
		"open:100/2":    "one job a frame",
		"half:1":        `"half" is not a loop`,
	} {
		if _, err := ParseScenario(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, expected it to contain %q", text, err, want)
		}
	}
}
