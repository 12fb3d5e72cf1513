package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

func TestLabelRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]freeslot.LabelRule{
		"gpu in A100,H100":   {Label: "gpu", Operator: freeslot.LabelIn, Values: []string{"A100", "H100"}},
		" gpu  in  A100 80 ": {Label: "gpu", Operator: freeslot.LabelIn, Values: []string{"A100 80"}},
		"gpu exists":         {Label: "gpu", Operator: freeslot.LabelExists},
		"ram ge 64":          {Label: "ram", Operator: freeslot.LabelGreaterEqual, Values: []string{"64"}},
	} {
		var got labelRule
		if err := got.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v; want no error", text, err)
		}
		if diff := cmp.Diff(want, freeslot.LabelRule(got)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"", "gpu", " gpu "} {
		if err := new(labelRule).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for a rule", text)
		}
	}
}

// A refusal names the flags that no node satisfies, so the flags have arrived.
func TestSubmitRequirements(t *testing.T) {
	t.Parallel()
	l := start(t)
	for want, flags := range map[string][]string{
		"service_version": {"--also-service", "echo@>=1.2, <2"},
		"features":        {"--feature", "voice"},
		"labels":          {"--label-rule", "gpu in A100,H100", "--label-rule", "gpu exists"},
	} {
		l.ctl(t, append([]string{"submit", "echo"}, flags...)...).expect(t, exitFailure, "no_matching_node", want)
	}
	l.ctl(t, "submit", "echo", "1", "--wait", "--prefer-pool", "fast", "--affinity-key", "user 7", "--label-rule", "tpu not_exists").expect(t, exitOK, "1")
}

// TestExplainCommand: the flags in the command mean the same when they are read again, also by a
// shell.
func TestExplainCommand(t *testing.T) {
	t.Parallel()
	f := requirementFlags{
		Pool: "eu", PreferPool: "gpu", AlsoService: []string{"asr@>=1.2 <2"}, Source: "de", Target: "en", Label: map[string]string{"zone": "it's", "gpu": "a100"},
		LabelRule: []labelRule{{Label: "vram", Operator: "ge", Values: []string{"40"}}, {Label: "gpu", Operator: "exists"}}, AffinityKey: "a b", Slots: 2,
		Feature: []string{"emotion", "voice"},
	}
	want := `schedctl explain tts --pool eu --prefer-pool gpu --also-service 'asr@>=1.2 <2' --source de --target en --label gpu=a100 ` +
		`--label 'zone=it'\''s' --label-rule 'vram ge 40' --label-rule 'gpu exists' --feature emotion --feature voice --affinity-key 'a b' --slots 2`
	if got := f.explainCommand("tts"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
