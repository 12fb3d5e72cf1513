package collector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte("\ufeff" + ` {"queue": 12, "share": 0.25, "big": 1e30, "whole": 3.0, "model": "ä\n", "ready": true, "unknown": null} ` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Metrics{"queue": int64(12), "share": 0.25, "big": 1e30, "whole": 3.0, "model": "ä\n", "ready": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(- expected, + got):\n%s", diff)
	}
	if got, err := Parse([]byte(`{}`)); err != nil || got == nil || len(got) != 0 {
		t.Errorf("an empty object: %v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range MaxParsedFields + 1 {
		many = append(many, fmt.Sprintf(`"f%d":1`, i))
	}
	for text, want := range map[string]string{
		``:                                      "expected a JSON object",
		`12`:                                    "expected a JSON object",
		`[1]`:                                   "expected a JSON object",
		`null`:                                  "got null",
		`{"a":1`:                                "expected a JSON object",
		`{"a":1}{"b":2}`:                        "nothing after it",
		`{"a":1} done`:                          "nothing after it",
		`{"A":1}`:                               `the field "A"`,
		`{"a.b":1}`:                             `the field "a.b"`,
		`{"":1}`:                                `the field ""`,
		`{"a":[1]}`:                             "field a is a list or an object",
		`{"a":{"b":1}}`:                         "field a is a list or an object",
		`{"a":1e999}`:                           "field a is a number that is too large",
		`{"a":NaN}`:                             "expected a JSON object",
		`{"` + strings.Repeat("a", 65) + `":1}`: "the field",
		`{` + strings.Join(many, ",") + `}`:     "the object has 65 fields, expected at most 64",
	} {
		if got, err := Parse([]byte(text)); err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v and %v, expected %q", text, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":"x","c":true,"d":null,"e":1.5e3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		figures, err := Parse(data)
		if err != nil {
			return
		}
		if cleaned, dropped := clean(figures); len(dropped) > 0 || len(cleaned) != len(figures) {
			t.Fatalf("%q: %v is refused when it is published: %v", data, figures, dropped)
		}
	})
}
