package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

func TestPoolsMembers(t *testing.T) {
	t.Parallel()
	pools := Pools{
		{ID: "bare"},
		{ID: "german", SourceLanguages: []string{"de-AT", "de-CH"}},
		{ID: "speech", Services: []string{"asr", "tts"}},
		{ID: "pair", SourceLanguages: []string{"en"}, TargetLanguages: []string{"fr", "it"}},
		{ID: "eu", Labels: map[string]string{"zone": "eu"}},
	}
	for name, tc := range map[string]struct {
		node freeslot.Node
		want []string
	}{
		"nothing":                  {freeslot.Node{}, nil},
		"explicit only":            {freeslot.Node{Pools: []string{"bare"}}, []string{"bare"}},
		"not configured":           {freeslot.Node{Pools: []string{"own", "bare", "own"}}, []string{"bare", "own"}},
		"explicit beats the rule":  {freeslot.Node{Pools: []string{"eu"}}, []string{"eu"}},
		"one of the languages":     {freeslot.Node{Languages: freeslot.Languages{ASR: []string{"DE"}}}, []string{"german"}},
		"lookup, not prefix":       {freeslot.Node{Languages: freeslot.Languages{ASR: []string{"de-AT-1996"}}}, nil},
		"all of the services":      {freeslot.Node{Services: services("tts")}, nil},
		"services":                 {freeslot.Node{Services: services("tts", "asr", "ocr")}, []string{"speech"}},
		"both stages where listed": {freeslot.Node{Languages: freeslot.Languages{ASR: []string{"en"}}}, nil},
		"both stages":              {freeslot.Node{Languages: freeslot.Languages{ASR: []string{"en"}, TTS: []string{"it"}}}, []string{"pair"}},
		"labels":                   {freeslot.Node{Labels: map[string]string{"zone": "eu", "a": "b"}}, []string{"eu"}},
	} {
		if got := enabled(pools).Members(&tc.node); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestPoolsValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pools Pools
		field string
	}{
		"none":         {nil, ""},
		"good":         {Pools{{ID: "a", SourceLanguages: []string{"de", "zh-Hant-TW"}, Services: []string{"tts"}, Labels: map[string]string{"z": ""}}, {ID: "b"}}, ""},
		"no id":        {Pools{{ID: "a"}, {}}, "pools[1].id"},
		"bad id":       {Pools{{ID: "a:b"}}, "pools[0].id"},
		"twice":        {Pools{{ID: "a"}, {ID: "b"}, {ID: "a"}}, "pools[2].id"},
		"source":       {Pools{{ID: "a", SourceLanguages: []string{"de", "d e"}}}, "pools[0].source_languages[1]"},
		"empty tag":    {Pools{{ID: "a", SourceLanguages: []string{""}}}, "pools[0].source_languages[0]"},
		"long tag":     {Pools{{ID: "a", SourceLanguages: []string{"de-x" + strings.Repeat("-abcdefgh", 7)}}}, "pools[0].source_languages[0]"},
		"target":       {Pools{{ID: "a", TargetLanguages: []string{"12"}}}, "pools[0].target_languages[0]"},
		"many tags":    {Pools{{ID: "a", TargetLanguages: slices.Repeat([]string{"de"}, freeslot.MaxLanguages+1)}}, "pools[0].target_languages"},
		"service":      {Pools{{ID: "a", Services: []string{"tts", "t s"}}}, "pools[0].services[1]"},
		"many":         {Pools{{ID: "a", Services: slices.Repeat([]string{"x"}, freeslot.MaxServices+1)}}, "pools[0].services"},
		"label":        {Pools{{ID: "a", Labels: map[string]string{"zone": "a\nb"}}}, "pools[0].labels.zone"},
		"label length": {Pools{{ID: "a", Labels: map[string]string{"zone": strings.Repeat("x", freeslot.MaxLabelValueLength+1)}}}, "pools[0].labels.zone"},
		"label name":   {Pools{{ID: "a", Labels: map[string]string{"": "b"}}}, "pools[0].labels name"},
		"many labels":  {Pools{{ID: "a", Labels: manyLabels(freeslot.MaxLabels + 1)}}, "pools[0].labels"},
		"many pools":   {make(Pools, MaxConfiguredPools+1), "pools"},
	} {
		err := tc.pools.Validate("pools").Err()
		var coded *freeslot.Error
		switch {
		case tc.field == "" && err != nil:
			t.Errorf("%s: got %v, want no error", name, err)
		case tc.field == "":
		case !errors.As(err, &coded) || coded.Code != freeslot.CodeInvalidArgument || coded.Field != tc.field:
			t.Errorf("%s: got %#v, want invalid_argument for %s", name, err, tc.field)
		}
	}
}

func manyLabels(count int) map[string]string {
	labels := make(map[string]string, count)
	for i := range count {
		labels[fmt.Sprintf("l%d", i)] = "v"
	}
	return labels
}

func TestPoolCoverage(t *testing.T) {
	t.Parallel()
	pools := Pools{
		{ID: "none", Services: []string{"tts"}},
		{ID: "source", SourceLanguages: []string{"de"}},
		{ID: "both", SourceLanguages: []string{"de", "en"}, TargetLanguages: []string{"fr"}},
	}
	for _, tc := range []struct {
		source, target string
		want           []string
	}{
		{"", "", nil},
		{"de-AT", "", []string{"source", "both"}},
		{"en", "", []string{"both"}},
		{"", "fr", []string{"both"}},
		{"de", "fr", []string{"both"}},
		{"de", "it", nil},
		{"it", "", nil},
	} {
		var got []string
		for _, r := range compile(enabled(pools)).covering(fold(tc.source), fold(tc.target)) {
			got = append(got, r.id)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q > %q: got %q, want %q", tc.source, tc.target, got, tc.want)
		}
	}
}

// TestEachPool: the configured pools of a node are those of Members, without the ones that only the
// node names.
func TestEachPool(t *testing.T) {
	t.Parallel()
	cfg := &Config{Enabled: true, Pools: Pools{{ID: "a", Members: []string{"n1"}}, {ID: "b", Members: []string{"n2"}}, {ID: "c"}}}
	node := &freeslot.Node{ID: "n1", Pools: []string{"c", "own"}}
	var got []string
	cfg.EachPool(Compile(node), func(id string) { got = append(got, id) })
	if members := cfg.Members(node); !slices.Equal(got, []string{"a", "c"}) || !slices.Equal(members, []string{"a", "c", "own"}) {
		t.Errorf("the node is in %q, by Members %q; want a and c, and own as well", got, members)
	}
}
