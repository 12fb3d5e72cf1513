package selection

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// A job is expected where a node of the pool would fit it, by the very rules that real nodes are
// compared by.
func TestExpecting(t *testing.T) {
	t.Parallel()
	cfg := &Config{Enabled: true, Pools: Pools{
		{ID: "small", Expects: &Expects{Services: []string{"tts"}}},
		{ID: "plain", SourceLanguages: []string{"ja"}, TargetLanguages: []string{"ja"}, Labels: map[string]string{"zone": "asia"}},
		{
			ID: "gpu", MaxWaitForNode: "90s", Expects: &Expects{
				Services: []string{"tts", "asr@1.4.2"}, Labels: map[string]string{"gpu": "a100"}, Slots: 8,
				Languages: ExpectedLanguages{ASR: []string{"de", "ja"}, TTS: []string{"en", "ja"}},
			},
		},
	}}
	small, gpu := Expected{"small", DefaultMaxWaitForNode}, Expected{"gpu", 90 * time.Second}
	r := func(change func(*freeslot.Requirement)) freeslot.Requirement {
		var out freeslot.Requirement
		change(&out)
		return out
	}
	for name, tc := range map[string]struct {
		service string
		r       freeslot.Requirement
		slots   int
		want    []Expected
	}{
		"service":       {"tts", freeslot.Requirement{}, 1, []Expected{small, gpu}},
		"no service":    {"upper", freeslot.Requirement{}, 1, nil},
		"slots":         {"tts", freeslot.Requirement{}, 2, []Expected{gpu}},
		"too many":      {"tts", freeslot.Requirement{}, 9, nil},
		"version":       {"tts", r(func(r *freeslot.Requirement) { r.Services = []string{"asr@^1.4"} }), 1, []Expected{gpu}},
		"other version": {"tts", r(func(r *freeslot.Requirement) { r.Services = []string{"asr@^2"} }), 1, nil},
		"no version":    {"tts", r(func(r *freeslot.Requirement) { r.Services = []string{"tts@^1"} }), 1, nil},
		"label":         {"tts", r(func(r *freeslot.Requirement) { r.Labels = map[string]string{"gpu": "a100"} }), 1, []Expected{gpu}},
		"other label":   {"tts", r(func(r *freeslot.Requirement) { r.Labels = map[string]string{"gpu": "h100"} }), 1, nil},
		"languages":     {"tts", r(func(r *freeslot.Requirement) { r.SourceLanguage, r.TargetLanguage = "de-AT", "en" }), 1, []Expected{gpu}},
		"covered":       {"tts", r(func(r *freeslot.Requirement) { r.SourceLanguage = "ja" }), 1, nil}, // by plain alone
		"pool":          {"tts", r(func(r *freeslot.Requirement) { r.Pool = "small" }), 1, []Expected{small}},
		"other pool":    {"tts", r(func(r *freeslot.Requirement) { r.Pool = "plain" }), 1, nil},
		"preferred":     {"tts", r(func(r *freeslot.Requirement) { r.PreferredPool = "gpu" }), 1, []Expected{gpu, small}},
		"feature":       {"tts", r(func(r *freeslot.Requirement) { r.Features = []string{"emotion"} }), 1, nil},
	} {
		if diff := cmp.Diff(tc.want, cfg.Expecting(tc.service, &tc.r, tc.slots), cmp.Transformer("", func(e []Expected) []Expected {
			return append([]Expected{}, e...)
		})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	off := *cfg
	off.Enabled = false
	for name, cfg := range map[string]*Config{"disabled": &off, "none": nil, "without": {Enabled: true, Pools: Pools{{ID: "gpu"}}}} {
		if got := cfg.Expecting("tts", &freeslot.Requirement{}, 1); got != nil {
			t.Errorf("%s: got %v; want none", name, got)
		}
	}
}

func TestExpectsValidate(t *testing.T) {
	t.Parallel()
	bad := Pools{
		{ID: "a", MaxWaitForNode: "10m"},
		{ID: "b", MaxWaitForNode: "soon", Expects: &Expects{Slots: -1}},
		{ID: "c", MaxWaitForNode: "25h", Expects: &Expects{
			Services: []string{"asr@1.4", "tts@>=1", "a b"}, Labels: map[string]string{"z": "\x00"},
			Languages: ExpectedLanguages{ASR: []string{"??"}, TTS: []string{"de"}, Semantic: []string{"d e"}},
		}},
		{ID: "d", MaxWaitForNode: "1s", Expects: &Expects{Services: []string{"tts"}, Slots: 65536}},
	}
	const name = "expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"
	const tag = "expected a BCP 47 language tag such as de or zh-Hant-TW of at most 64 characters"
	const wait = "expected a duration of 1s to 24h such as 10m"
	want := []string{
		"pools[0].max_wait_for_node is set without expects, expected both",
		`pools[1].max_wait_for_node is "soon", ` + wait,
		"pools[1].expects.services has 0 entries, expected 1 to 64",
		"pools[1].expects.slots is -1, expected 0 to 65536 (0 means 1)",
		`pools[2].max_wait_for_node is "25h", ` + wait,
		`pools[2].expects.services[1] version has '>' at position 0, ` + name,
		`pools[2].expects.services[2] has ' ' at position 1, ` + name,
		"pools[2].expects.labels.z is not a label value, expected at most 128 bytes without control characters",
		`pools[2].expects.languages.asr[0] is "??", ` + tag,
		`pools[2].expects.languages.semantic[0] is "d e", ` + tag,
	}
	var got []string
	for _, f := range bad.Validate("pools") {
		got = append(got, f.Message)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
