package selection

import (
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

func services(names ...string) []freeslot.Service {
	list := make([]freeslot.Service, len(names))
	for i, name := range names {
		list[i] = freeslot.Service{Name: name, Version: "1"}
	}
	return list
}

func TestMatch(t *testing.T) {
	t.Parallel()
	node := &freeslot.Node{
		ID: "n", MaxConcurrency: 1,
		Services: services("asr", "tts"),
		Languages: freeslot.Languages{
			ASR: []string{"de", "en"}, TTS: []string{"en", "zh-Hant", "fr"}, Semantic: []string{"de", "en"},
		},
		Pools:    []string{"gold"},
		Labels:   map[string]string{"zone": "eu", "empty": ""},
		Features: map[string]bool{"emotion": true, "stream": true, "voice": false},
	}
	for name, tc := range map[string]struct {
		service string
		r       freeslot.Requirement
		want    Reason
	}{
		"nothing asked":            {"tts", freeslot.Requirement{}, ""},
		"service missing":          {"ocr", freeslot.Requirement{}, ReasonService},
		"further service":          {"tts", freeslot.Requirement{Services: []string{"asr", "tts"}}, ""},
		"further service missing":  {"tts", freeslot.Requirement{Services: []string{"asr", "ocr"}}, ReasonService},
		"pool named by the node":   {"tts", freeslot.Requirement{Pool: "gold"}, ""},
		"other pool":               {"tts", freeslot.Requirement{Pool: "silver"}, ReasonPool},
		"source":                   {"tts", freeslot.Requirement{SourceLanguage: "de-AT"}, ""},
		"source is not a target":   {"tts", freeslot.Requirement{SourceLanguage: "fr"}, ReasonSourceLanguage},
		"target":                   {"tts", freeslot.Requirement{TargetLanguage: "zh-Hant-TW"}, ""},
		"target too general":       {"tts", freeslot.Requirement{TargetLanguage: "zh"}, ReasonTargetLanguage},
		"pair":                     {"tts", freeslot.Requirement{SourceLanguage: "de", TargetLanguage: "en-GB"}, ""},
		"pair not translated":      {"tts", freeslot.Requirement{SourceLanguage: "de", TargetLanguage: "fr"}, ReasonLanguagePair},
		"target alone, no pair":    {"tts", freeslot.Requirement{TargetLanguage: "fr"}, ""},
		"labels":                   {"tts", freeslot.Requirement{Labels: map[string]string{"zone": "eu", "empty": ""}}, ""},
		"label of another value":   {"tts", freeslot.Requirement{Labels: map[string]string{"zone": "us"}}, ReasonLabels},
		"label case":               {"tts", freeslot.Requirement{Labels: map[string]string{"zone": "EU"}}, ReasonLabels},
		"absent is not empty":      {"tts", freeslot.Requirement{Labels: map[string]string{"rack": ""}}, ReasonLabels},
		"features":                 {"tts", freeslot.Requirement{Features: []string{"stream", "emotion"}}, ""},
		"feature missing":          {"tts", freeslot.Requirement{Features: []string{"emotion", "clone"}}, ReasonFeatures},
		"feature is false":         {"tts", freeslot.Requirement{Features: []string{"voice"}}, ReasonFeatures},
		"labels before features":   {"tts", freeslot.Requirement{Labels: map[string]string{"a": "b"}, Features: []string{"voice"}}, ReasonLabels},
		"the first reason counts":  {"ocr", freeslot.Requirement{Pool: "x", SourceLanguage: "xx"}, ReasonService},
		"pool before languages":    {"tts", freeslot.Requirement{Pool: "x", SourceLanguage: "xx"}, ReasonPool},
		"languages before labels":  {"tts", freeslot.Requirement{TargetLanguage: "it", Labels: map[string]string{"a": "b"}}, ReasonTargetLanguage},
		"source before the target": {"tts", freeslot.Requirement{SourceLanguage: "it", TargetLanguage: "it"}, ReasonSourceLanguage},
	} {
		if got := Compile(node).Match(nil, tc.service, &tc.r); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestMatchWithoutSemanticStage(t *testing.T) {
	t.Parallel()
	node := &freeslot.Node{
		ID: "n", MaxConcurrency: 1, Services: services("tts"),
		Languages: freeslot.Languages{ASR: []string{"de"}, TTS: []string{"fr"}},
	}
	r := &freeslot.Requirement{SourceLanguage: "de", TargetLanguage: "fr"}
	if got := Compile(node).Match(nil, "tts", r); got != "" {
		t.Errorf("got %q, want a fit", got)
	}
}

// Two jobs of one class must fit the same nodes.
func TestMatchIgnoresWhatTheClassIgnores(t *testing.T) {
	t.Parallel()
	node := &freeslot.Node{
		ID: "n", MaxConcurrency: 1, Services: services("tts", "asr"),
		Languages: freeslot.Languages{ASR: []string{"DE"}},
	}
	a := &freeslot.Requirement{Services: []string{"asr", "tts", "asr"}, SourceLanguage: "de-at"}
	b := &freeslot.Requirement{Services: []string{"tts", "asr"}, SourceLanguage: "DE-AT"}
	if string(class.AppendCanonical(nil, "tts", a)) != string(class.AppendCanonical(nil, "tts", b)) {
		t.Fatal("the two requirements are not of one class")
	}
	if got := [2]Reason{Compile(node).Match(nil, "tts", a), Compile(node).Match(nil, "tts", b)}; got != [2]Reason{} {
		t.Errorf("got %q, want a fit for both", got)
	}
}

// Match returns the first part of "service with requirement r" that the node fails, "" if it fails
// none.
func (p *Profile) Match(cfg *Config, service string, r *freeslot.Requirement) Reason {
	_, why := newFilter(compile(cfg), service, r).match(p)
	return why
}
