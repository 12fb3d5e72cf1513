package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// Every bad field is named, in order, with what was expected.
func TestConfigValidate(t *testing.T) {
	t.Parallel()
	bad := Config{
		Mode: "three_level", Policy: "random", AffinityLoadFactor: 1,
		Pools: Pools{
			{ID: "a b", SourceLanguages: []string{"de", "??", "d e"}, Labels: map[string]string{"z": "\x00", "bad name": "", "a": "ok"}, TargetWait: "1"},
			{ID: "p", Members: []string{"n1", ""}, Services: []string{"asr@>=1.2 <2", "asr@y"}, TargetWait: "500ms"},
			{ID: "p", TargetWait: "30s"},
		},
	}
	const name = "expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"
	const tag = "expected a BCP 47 language tag such as de or zh-Hant-TW of at most 64 characters"
	want := []string{
		`config.mode is "three_level", expected two_level or flat`,
		`config.policy is "random", expected least_loaded or binpack`,
		`config.affinity_load_factor is 1, expected 1.01 to 100 (0 or absent means 1.25)`,
		`config.pools[0].id has ' ' at position 1, ` + name,
		`config.pools[0].source_languages[1] is "??", ` + tag,
		`config.pools[0].source_languages[2] is "d e", ` + tag,
		`config.pools[0].labels name has ' ' at position 3, ` + name,
		`config.pools[0].labels.z is not a label value, expected at most 128 bytes without control characters`,
		`config.pools[0].target_wait is "1", expected a duration of 1s to 24h such as 30s`,
		`config.pools[1].members[1] is 0 characters long, ` + name,
		`config.pools[1].services[1] is "asr@y", expected after the @ a range of semantic versions such as >=1.2 <2, ^1.4, ~1.2.3 or 1.x, at most 128 bytes long`,
		`config.pools[1].target_wait is "500ms", expected a duration of 1s to 24h such as 30s`,
		`config.pools[2].id is "p", which config.pools[1] has already`,
	}
	var got []string
	for _, f := range bad.Validate("config") {
		got = append(got, f.Message)
		if !strings.HasPrefix(f.Message, f.Field+" ") {
			t.Errorf("%#v does not begin with its field", f)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var first *freeslot.Error
	if err := bad.Validate("").Err(); !errors.As(err, &first) || first.Field != "mode" {
		t.Errorf("without a path the first bad field is %v", first)
	}
}

func TestConfigValidateLimits(t *testing.T) {
	t.Parallel()
	tags := slices.Repeat([]string{"de"}, freeslot.MaxLanguages)
	pairs := slices.Repeat([]Pool{{SourceLanguages: tags, TargetLanguages: tags}}, 17)
	for i := range pairs {
		pairs[i].ID = fmt.Sprint(i)
	}
	for name, tc := range map[string]struct {
		cfg   Config
		field string
	}{
		"zero":            {Config{}, ""},
		"factor":          {Config{AffinityLoadFactor: 1.01}, ""},
		"infinite factor": {Config{AffinityLoadFactor: math.Inf(1)}, "affinity_load_factor"},
		"no number":       {Config{AffinityLoadFactor: math.NaN()}, "affinity_load_factor"},
		"negative":        {Config{AffinityLoadFactor: -2}, "affinity_load_factor"},
		"members":         {Config{Pools: Pools{{ID: "a", Members: make([]string, MaxPoolMembers+1)}}}, "pools[0].members"},
		"pools":           {Config{Pools: make(Pools, MaxConfiguredPools+1)}, "pools"},
		"pairs":           {Config{Pools: pairs}, "pools"},
		"fewer pairs":     {Config{Pools: pairs[:16]}, ""},
	} {
		var e *freeslot.Error
		err := tc.cfg.Validate("").Err()
		if (err == nil) != (tc.field == "") || err != nil && (!errors.As(err, &e) || e.Field != tc.field) {
			t.Errorf("%s: got %v, want %q", name, err, tc.field)
		}
	}
}

func TestConfigWithDefaults(t *testing.T) {
	t.Parallel()
	want := Config{Mode: ModeTwoLevel, Policy: PolicyLeastLoaded, AffinityLoadFactor: 1.25, Pools: Pools{}}
	if diff := cmp.Diff(want, (*Config)(nil).WithDefaults()); diff != "" {
		t.Error(diff)
	}
	set := Config{Enabled: true, Mode: ModeFlat, Policy: PolicyBinpack, AffinityLoadFactor: 2, Pools: Pools{{ID: "a"}}}
	if diff := cmp.Diff(set, set.WithDefaults()); diff != "" {
		t.Error(diff)
	}
}

func TestModeAndEnabled(t *testing.T) {
	t.Parallel()
	node := NewNode(Compile(&freeslot.Node{
		ID: "a", MaxConcurrency: 1, Services: services("tts"), Pools: []string{"own"},
		Languages: freeslot.Languages{ASR: []string{"de"}},
	}), 0)
	pools := Pools{{ID: "elsewhere", SourceLanguages: []string{"de"}, Labels: map[string]string{"x": "y"}}, {ID: "rule", SourceLanguages: []string{"de"}, Members: []string{"b"}, Services: []string{"ocr"}}, {ID: "named", Members: []string{"a"}}}
	for name, tc := range map[string]struct {
		cfg  *Config
		r    freeslot.Requirement
		want Reason
	}{
		"two levels restrict languages": {&Config{Enabled: true, Pools: pools}, freeslot.Requirement{SourceLanguage: "de"}, ReasonPool},
		"flat does not":                 {&Config{Enabled: true, Mode: ModeFlat, Pools: pools}, freeslot.Requirement{SourceLanguage: "de"}, ""},
		"flat knows members":            {&Config{Enabled: true, Mode: ModeFlat, Pools: pools}, freeslot.Requirement{Pool: "named"}, ""},
		"flat restricts by name":        {&Config{Enabled: true, Mode: ModeFlat, Pools: pools}, freeslot.Requirement{Pool: "rule"}, ReasonPool},
		"disabled does not":             {&Config{Pools: pools}, freeslot.Requirement{SourceLanguage: "de"}, ""},
		"disabled has no members":       {&Config{Pools: pools}, freeslot.Requirement{Pool: "named"}, ReasonPool},
		"disabled, named by the node":   {&Config{Pools: pools}, freeslot.Requirement{Pool: "own"}, ""},
	} {
		if got := node.Profile().Match(tc.cfg, "tts", &tc.r); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// What is prepared from a Config goes when the Config does.
func TestCompiledConfigIsFreed(t *testing.T) {
	key := func() weak.Pointer[Config] {
		cfg := &Config{Enabled: true, Pools: Pools{{ID: "a"}}}
		first := compile(cfg)
		if again := compile(cfg); again != first {
			t.Error("a Config is compiled twice")
		}
		return weak.Make(cfg)
	}()
	for range 1000 {
		runtime.GC() // cleanups run on a goroutine of the runtime some time after it
		if _, ok := prepared.Load(key); !ok {
			return
		}
	}
	t.Error("what was prepared is still there")
}

func TestConfigJSON(t *testing.T) {
	t.Parallel()
	const text = `{"enabled":true,"mode":"two_level","policy":"binpack","affinity_load_factor":1.5,"pools":[{"id":"a","members":["n1"],` +
		`"source_languages":["de"],"target_languages":["en"],"services":["asr@^1"],"labels":{"zone":"eu"}}]}`
	cfg, err := parseConfig("config", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(cfg); string(got) != text {
		t.Errorf("got  %s, %v\nwant %s", got, err, text)
	}
	for in, field := range map[string]string{
		`{"enabled":true,"pool":[]}`: "pool", `{} {}`: "config", `{"enabled":1}`: "enabled", ``: "config",
		`{"pools":[{"id":"a","rules":{}}]}`: "rules", `{"mode":"x"}`: "config.mode", `{"pools":[{}]}`: "config.pools[0].id",
	} {
		var e *freeslot.Error
		if _, err := parseConfig("config", []byte(in)); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: got %v, want %s", in, err, field)
		}
	}
}

// FuzzConfig: what is accepted is written and read again as the same, can be
// used, and lists a node's pools without repetition.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"enabled":true,"pools":null}`, `{"enabled":true,"mode":"flat","pools":[{"id":"a"}]}`,
		`{"enabled":true,"pools":[{"id":"a","source_languages":["de"],"target_languages":["zh-Hant"],"members":["n"],"labels":{"a":"b"}},{"id":"b","services":["asr@>=1 <2"]}]}`,
		`{"affinity_load_factor":1.5,"policy":"binpack"}`,
	} {
		f.Add([]byte(seed))
	}
	node := &freeslot.Node{ID: "n", MaxConcurrency: 1, Services: services("asr"), Pools: []string{"a"}, Languages: freeslot.Languages{ASR: []string{"de"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parseConfig("", data)
		if err != nil {
			return
		}
		text, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseConfig("", text)
		if err != nil {
			t.Fatalf("%s is not accepted again: %v", text, err)
		}
		if second, _ := json.Marshal(again); string(second) != string(text) {
			t.Errorf("%s became %s", text, second)
		}
		members := cfg.Members(node)
		for i, id := range members {
			if slices.Contains(members[:i], id) {
				t.Errorf("%s: pool %s twice", text, id)
			}
		}
		for pair, ids := range cfg.LanguagePairs() {
			if len(ids) == 0 || !strings.Contains(pair, ":") {
				t.Errorf("%s: pair %q has pools %q", text, pair, ids)
			}
		}
		NewClass([]*Node{NewNode(Compile(node), 0)}, cfg, "asr", &freeslot.Requirement{SourceLanguage: "de"}).Choose(make([]*Node, 0, 1), &Query{}, NewSource(1))
	})
}

// parseConfig reads a configuration in JSON. It refuses unknown fields, trailing data and what
// [Config.Validate] refuses; path is the configuration's name in errors and can be empty.
func parseConfig(path string, data []byte) (*Config, error) {
	name := path
	if name == "" {
		name = "config"
	}
	c := new(Config)
	if err := freeslot.DecodeStrict(name, data, c); err != nil {
		return nil, err
	}
	if err := c.Validate(path).Err(); err != nil {
		return nil, err
	}
	return c, nil
}
