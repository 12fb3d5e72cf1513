package registry

import (
	"errors"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	in := &Instance{
		Registration: Registration{Metadata: map[string]string{"zone": "west", "gpus": "4"}},
		Metrics:      []byte(`{"cpu":{"usage":0.8,"name":"EPYC"},"disk":{"state":"read only","up":true,"size":"10"},"odd":5}`),
	}
	rule := func(label string, operator freeslot.LabelOperator, values ...string) freeslot.LabelRule {
		return freeslot.LabelRule{Label: label, Operator: operator, Values: values}
	}
	for _, tc := range []struct {
		metadata []freeslot.LabelRule
		metrics  string
		want     bool
	}{
		{nil, "", true},
		{[]freeslot.LabelRule{rule("zone", freeslot.LabelIn, "west", "east")}, "", true},
		{[]freeslot.LabelRule{rule("zone", freeslot.LabelIn, "west"), rule("gpus", freeslot.LabelLess, "4")}, "", false},
		{nil, "cpu.usage < 0.8", false},
		{nil, "cpu.usage<=0.80", true},
		{nil, "cpu.usage == 8e-1", true},
		{nil, "cpu.usage != 0.8", false},
		{nil, "cpu.usage > 0.79", true},
		{nil, "cpu.usage >= 0.81", false},
		{nil, "cpu.name == EPYC", true},
		{nil, `disk.state == "read only"`, true},
		{nil, `disk.state != "read only"`, false},
		{nil, "disk.size > 9", true},
		{nil, "disk.up == true", true},
		{nil, "disk.up != true", false},
		{nil, "odd.x == 5", false},
		{nil, "none.x != 5", true},
		{nil, "none.x < 5", false},
		{nil, "cpu.name < 5", false},
	} {
		var metrics []string
		if tc.metrics != "" {
			metrics = []string{tc.metrics}
		}
		f, err := NewFilter(tc.metadata, metrics)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Takes(in); got != tc.want {
			t.Errorf("%v %q: got %v, want %v", tc.metadata, tc.metrics, got, tc.want)
		}
	}
	if !(*Filter)(nil).Takes(in) {
		t.Error("no filter takes no instance")
	}
}

func TestFilterNamesAllBadTerms(t *testing.T) {
	t.Parallel()
	_, err := NewFilter(
		[]freeslot.LabelRule{{Label: "a", Operator: freeslot.LabelExists}, {Label: "a", Operator: "like"}},
		[]string{"cpu.usage < 1", "cpu.usage", "cpu < 1", "cpu.usage < much", "cpu.usage == ", `cpu.name == "x`, ".usage < 1", "cpu.usage = 1"})
	var coded *freeslot.Error
	if !errors.As(err, &coded) {
		t.Fatal(err)
	}
	var got []string
	for _, bad := range coded.Errors {
		got = append(got, bad.Field)
	}
	if want := "metadata[1].operator metrics[1] metrics[2] metrics[3] metrics[4] metrics[5] metrics[6] metrics[7]"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s: %v", got, want, coded.Errors)
	}
	if _, err := NewFilter(nil, make([]string, 33)); err == nil || !strings.Contains(err.Error(), "metrics has 33 entries") {
		t.Errorf("got %v, want a limit", err)
	}
}
