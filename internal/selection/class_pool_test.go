package selection

import (
	"testing"

	"github.com/freeslot/freeslot"
)

// TestClassPool: the demand of each class counts for one pool.
func TestClassPool(t *testing.T) {
	t.Parallel()
	cfg := &Config{Enabled: true, Pools: Pools{
		{ID: "empty"},
		{ID: "german", SourceLanguages: []string{"de"}},
		{ID: "speech", Services: []string{"asr"}},
		{ID: "all", Services: []string{"any"}},
		{ID: "future", Services: []string{"ocr"}, Expects: &Expects{Services: []string{"ocr"}}},
	}}
	usual, asr := freeslot.Service{Name: "any"}, freeslot.Service{Name: "asr"}
	nodes := []*Node{
		NewNode(Compile(&freeslot.Node{ID: "n1", MaxConcurrency: 1, Services: []freeslot.Service{usual, {Name: "tts"}}}), 0),
		NewNode(Compile(&freeslot.Node{ID: "n2", MaxConcurrency: 1, Services: []freeslot.Service{usual, asr}}), 0),
	}
	for _, test := range []struct {
		service     string
		requirement freeslot.Requirement
		want        string
	}{
		{"asr", freeslot.Requirement{}, "speech"},
		{"tts", freeslot.Requirement{}, "all"},
		{"any", freeslot.Requirement{}, "speech"},
		{"asr", freeslot.Requirement{Pool: "empty"}, "empty"},
		{"asr", freeslot.Requirement{Pool: "unknown"}, "unknown"},
		{"asr", freeslot.Requirement{PreferredPool: "all"}, "all"},
		{"asr", freeslot.Requirement{PreferredPool: "empty"}, "speech"},
		{"ocr", freeslot.Requirement{PreferredPool: "future"}, "future"},
		{"ocr", freeslot.Requirement{PreferredPool: "empty"}, "future"},
		{"ocr", freeslot.Requirement{PreferredPool: "unknown"}, "future"},
		{"nlp", freeslot.Requirement{PreferredPool: "empty"}, "empty"}, // there is no better one
		{"nlp", freeslot.Requirement{PreferredPool: "empty", SourceLanguage: "de"}, "empty"},
		{"asr", freeslot.Requirement{SourceLanguage: "de"}, "german"}, // no node, and so no other pool
		{"ocr", freeslot.Requirement{}, "future"},                     // whose nodes do not run yet
		{"ocr", freeslot.Requirement{SourceLanguage: "de"}, "german"},
		{"nlp", freeslot.Requirement{}, ""},
	} {
		class := NewClass(nodes, cfg, test.service, &test.requirement)
		if got := class.Pool(); got != test.want || class.Pool() != test.want {
			t.Errorf("demand for %s with %+v counts for pool %q; want %q", test.service, test.requirement, got, test.want)
		}
	}
	cfg = &Config{Enabled: true, Pools: cfg.Pools, Paused: &Paused{Services: []string{"tts"}, Pools: []string{"speech"}}}
	for service, want := range map[string]string{"tts": "all", "asr": "speech"} {
		if got := NewClass(nodes, cfg, service, &freeslot.Requirement{}).Pool(); got != want {
			t.Errorf("paused demand for %s counts for pool %q; want %q, as without the pause", service, got, want)
		}
	}
	if got := NewClass(nodes, nil, "asr", &freeslot.Requirement{}).Pool(); got != "" {
		t.Errorf("without pools demand counts for %q; want none", got)
	}
}
