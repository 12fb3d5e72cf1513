package freeslot_test

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

func TestLabelRuleHolds(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"gpu": "T4", "ram": "64", "empty": "", "half": "0.5", "big": "1e400"}
	for rule, want := range map[string]bool{
		"gpu in T4,A100": true, "gpu in A100": false, "rack in A100": false, "gpu in t4": false,
		"gpu not_in A100": true, "gpu not_in A100,T4": false, "rack not_in A100": true,
		"gpu exists": true, "empty exists": true, "rack exists": false,
		"gpu not_exists": false, "rack not_exists": true,
		"ram gt 63.9": true, "ram gt 64": false, "ram ge 64.0": true, "ram lt 100": true, "ram lt 64": false, "ram le 64": true, "ram le 9": false,
		"half lt 1": true, "half ge -1e3": true,
		"gpu gt 1": false, "gpu le 1": false, "empty lt 1": false, "rack gt 1": false, "rack lt 1": false, "big gt 1": false, "ram is 64": false,
	} {
		words := strings.Fields(rule + " ")
		r := freeslot.LabelRule{Label: words[0], Operator: freeslot.LabelOperator(words[1])}
		if len(words) > 2 {
			r.Values = strings.Split(words[2], ",")
		}
		if got := r.Holds(labels); got != want {
			t.Errorf("%s: got %t", rule, got)
		}
	}
}

func TestLabelRuleValidate(t *testing.T) {
	t.Parallel()
	rule := func(operator freeslot.LabelOperator, values ...string) freeslot.LabelRule {
		return freeslot.LabelRule{Label: "a", Operator: operator, Values: values}
	}
	const field = "job.requirement.label_rules"
	for name, tc := range map[string]struct {
		rules   []freeslot.LabelRule
		message string
	}{
		"none":      {nil, ""},
		"good":      {[]freeslot.LabelRule{rule("in", "x", ""), rule("not_in", "x"), rule("exists"), rule("not_exists"), rule("gt", "-1.5e3"), rule("le", "0")}, ""},
		"label":     {[]freeslot.LabelRule{{Label: "a b", Operator: "exists"}}, field + `[0].label has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit`},
		"operator":  {[]freeslot.LabelRule{rule("exists"), rule("In", "x")}, field + `[1].operator is "In", expected in, not_in, exists, not_exists, gt, ge, lt or le`},
		"no values": {[]freeslot.LabelRule{rule("in")}, field + "[0].values has 0 entries, expected 1 to 64 for in"},
		"values":    {[]freeslot.LabelRule{rule("exists", "x")}, field + "[0].values has 1 entries, expected none for exists"},
		"two":       {[]freeslot.LabelRule{rule("gt", "1", "2")}, field + "[0].values has 2 entries, expected exactly 1 for gt"},
		"number":    {[]freeslot.LabelRule{rule("ge", "0x10")}, field + `[0].values[0] is "0x10", expected a decimal number for ge`},
		"infinite":  {[]freeslot.LabelRule{rule("lt", "1e999")}, field + `[0].values[0] is "1e999", expected a decimal number for lt`},
		"value":     {[]freeslot.LabelRule{rule("not_in", "x", "a\nb")}, field + "[0].values[1] is not a label value, expected at most 128 bytes without control characters"},
		"too many":  {slices.Repeat([]freeslot.LabelRule{rule("exists")}, freeslot.MaxLabelRules+1), field + " has 33 entries, expected at most 32"},
	} {
		job := freeslot.Job{Service: "tts", Requirement: freeslot.Requirement{LabelRules: tc.rules}}
		err := job.Validate("job")
		if (err == nil) != (tc.message == "") || err != nil && err.Error() != "invalid_argument: "+tc.message {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Numbers are compared as by big.Float, if a float64 holds them exactly.
func TestLabelRuleNumbers(t *testing.T) {
	t.Parallel()
	number := rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("%.*f", rapid.IntRange(0, 2).Draw(t, "digits"), float64(rapid.IntRange(-40, 40).Draw(t, "quarters"))/4)
	})
	rapid.Check(t, func(t *rapid.T) {
		have, want := number.Draw(t, "label"), number.Draw(t, "value")
		a, _ := new(big.Float).SetString(have)
		b, _ := new(big.Float).SetString(want)
		order := a.Cmp(b)
		for operator, holds := range map[freeslot.LabelOperator]bool{
			freeslot.LabelGreater: order > 0, freeslot.LabelGreaterEqual: order >= 0, freeslot.LabelLess: order < 0, freeslot.LabelLessEqual: order <= 0,
		} {
			r := freeslot.LabelRule{Label: "x", Operator: operator, Values: []string{want}}
			if r.Holds(map[string]string{"x": have}) != holds {
				t.Fatalf("%s %s %s: want %t", have, operator, want, holds)
			}
		}
	})
}
