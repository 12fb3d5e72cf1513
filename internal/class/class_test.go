package class_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

func genRequirement(t *rapid.T) freeslot.Requirement {
	name := rapid.StringMatching(`[a-c]`)
	entry := rapid.SampledFrom([]string{"a", "b", "c", "a@>=1 <2", "b@^1 || ^3"})
	return freeslot.Requirement{
		Pool:           rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "pool"),
		PreferredPool:  rapid.SampledFrom([]string{"", "p", "q"}).Draw(t, "preferred"),
		Services:       rapid.SliceOfN(entry, 0, 3).Draw(t, "services"),
		SourceLanguage: rapid.SampledFrom([]string{"", "de", "de-AT"}).Draw(t, "source"),
		TargetLanguage: rapid.SampledFrom([]string{"", "en", "zh-Hant"}).Draw(t, "target"),
		Labels:         rapid.MapOfN(name, name, 0, 3).Draw(t, "labels"),
		LabelRules: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) freeslot.LabelRule {
			return freeslot.LabelRule{
				Label: name.Draw(t, "label"), Operator: rapid.SampledFrom([]freeslot.LabelOperator{"in", "not_in"}).Draw(t, "operator"),
				Values: rapid.SliceOfN(name, 1, 3).Draw(t, "values"),
			}
		}), 0, 2).Draw(t, "rules"),
		Features: rapid.SliceOfN(name, 0, 3).Draw(t, "features"),
	}
}

func canonical(r freeslot.Requirement, service string) string {
	return string(class.AppendCanonical(nil, service, &r))
}

// TestClassIsCanonical: order, repetition and spelling make no difference to the class; anything
// that can make a difference to a node does.
func TestClassIsCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := genRequirement(t)
		base := canonical(r, "tts")
		same := r
		same.Services = append(rapid.Permutation(r.Services).Draw(t, "order"), r.Services...)
		for i, entry := range same.Services {
			same.Services[i] = strings.NewReplacer(">=1 <2", "< 2,>=1", "^1 || ^3", "^3||^1||^3").Replace(entry)
		}
		same.SourceLanguage = strings.ReplaceAll(strings.ToUpper(r.SourceLanguage), "-", "_")
		same.LabelRules = append(rapid.Permutation(r.LabelRules).Draw(t, "rule order"), r.LabelRules...)
		for i, rule := range same.LabelRules {
			same.LabelRules[i].Values = append(rapid.Permutation(rule.Values).Draw(t, "value order"), rule.Values...)
		}
		same.Features = append(rapid.Permutation(r.Features).Draw(t, "feature order"), r.Features...)
		if got := canonical(same, "tts"); got != base {
			t.Fatalf("%q and %q are one class", got, base)
		}
		for what, change := range map[string]func(*freeslot.Requirement){
			"pool":      func(r *freeslot.Requirement) { r.Pool += "x" },
			"preferred": func(r *freeslot.Requirement) { r.PreferredPool += "x" },
			"source":    func(r *freeslot.Requirement) { r.SourceLanguage = "fr" },
			"target":    func(r *freeslot.Requirement) { r.TargetLanguage = "fr" },
			"labels":    func(r *freeslot.Requirement) { r.Labels = map[string]string{"z": "z"} },
			"service":   func(r *freeslot.Requirement) { r.Services = append([]string{"zzz"}, r.Services...) },
			"range":     func(r *freeslot.Requirement) { r.Services = append([]string{"tts@>7"}, r.Services...) },
			"rule": func(r *freeslot.Requirement) {
				r.LabelRules = append([]freeslot.LabelRule{{Label: "a", Operator: "exists"}}, r.LabelRules...)
			},
			"feature": func(r *freeslot.Requirement) { r.Features = append([]string{"z"}, r.Features...) },
		} {
			other := r
			change(&other)
			if canonical(other, "tts") == base {
				t.Fatalf("another %s is another class", what)
			}
		}
		if canonical(r, "asr") == base {
			t.Fatal("another service is another class")
		}
	})
}

func TestClassForm(t *testing.T) {
	t.Parallel()
	r := freeslot.Requirement{
		Pool: "p", PreferredPool: "q", Services: []string{"asr@<2, >=1.2", "asr", "tts"}, SourceLanguage: "de_AT",
		Labels:     map[string]string{"zone": "eu", "a": ""},
		LabelRules: []freeslot.LabelRule{{Label: "gpu", Operator: "in", Values: []string{"T4", "A100", "T4"}}, {Label: "b", Operator: "exists"}},
	}
	r.Features = []string{"voice", "emotion", "voice"}
	want := "s=asr@<2 >=1.2,tts p=p>q l=de-at>\x00a=\x00zone=eu\x01b\x02exists\x02\x01gpu\x02in\x02A100\x02T4\x03emotion\x03voice"
	if got := canonical(r, "tts"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for name, pair := range map[string][2]freeslot.Requirement{
		"preferred pool that is required": {{Pool: "p", PreferredPool: "p"}, {Pool: "p"}},
		"service with and without range":  {{Services: []string{"a@1", "a"}}, {Services: []string{"a@1"}}},
		"own service":                     {{Services: []string{"tts"}}, {}},
	} {
		if a, b := canonical(pair[0], "tts"), canonical(pair[1], "tts"); a != b {
			t.Errorf("%s: %q and %q are one class", name, a, b)
		}
	}
}

// Equal as stated means the same hash and the same class; a change of anything that
// makes another class is seen by both.
func TestClassHash(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := genRequirement(t), genRequirement(t)
		if rapid.Bool().Draw(t, "equal") {
			b = a
			b.Services, b.Labels, b.LabelRules = slices.Clone(a.Services), maps.Clone(a.Labels), slices.Clone(a.LabelRules)
			b.Features = slices.Clone(a.Features)
		}
		same := class.Same(&a, &b)
		if same && (class.Hash("tts", &a) != class.Hash("tts", &b) || canonical(a, "tts") != canonical(b, "tts")) {
			t.Fatalf("%+v and %+v are equal, their hashes or classes are not", a, b)
		}
		if !same && class.Hash("tts", &a) == class.Hash("tts", &b) {
			t.Fatalf("%+v and %+v have one hash", a, b)
		}
		if canonical(a, "tts") != canonical(b, "tts") && same {
			t.Fatal("two classes are called the same requirement")
		}
		if class.Hash("tts", &a) == class.Hash("asr", &a) {
			t.Fatal("another service has the same hash")
		}
	})
}

// Every field counts, by itself and in its place.
func TestClassHashOfEachField(t *testing.T) {
	t.Parallel()
	rules := func(rules ...freeslot.LabelRule) freeslot.Requirement { return freeslot.Requirement{LabelRules: rules} }
	all := []freeslot.Requirement{
		{},
		{Pool: "a"},
		{PreferredPool: "a"},
		{SourceLanguage: "a"},
		{TargetLanguage: "a"},
		{Services: []string{"a"}},
		{Services: []string{"a", "b"}},
		{Services: []string{"b", "a"}},
		{Services: []string{"ab"}},
		{Features: []string{"a"}},
		{Features: []string{"a", "b"}},
		{Services: []string{"a"}, Features: []string{"b"}},
		{Labels: map[string]string{"a": "b"}},
		{Labels: map[string]string{"b": "a"}},
		{Labels: map[string]string{"a": ""}},
		{Labels: map[string]string{"a": "b", "b": "a"}},
		{Labels: map[string]string{"a": "a", "b": "b"}},
		rules(freeslot.LabelRule{Label: "a", Operator: "in", Values: []string{"b"}}), rules(freeslot.LabelRule{Label: "b", Operator: "in", Values: []string{"a"}}),
		rules(freeslot.LabelRule{Label: "a", Operator: "not_in", Values: []string{"b"}}), rules(freeslot.LabelRule{Label: "a", Operator: "in", Values: []string{"b", "b"}}),
	}
	for i := range all {
		for j := range all {
			if same := class.Same(&all[i], &all[j]); same != (i == j) || (class.Hash("s", &all[i]) == class.Hash("s", &all[j])) != same {
				t.Errorf("%+v and %+v: same is %t", all[i], all[j], same)
			}
		}
	}
	empty := freeslot.Requirement{Services: []string{}, Features: []string{}, Labels: map[string]string{}, LabelRules: []freeslot.LabelRule{}}
	if !class.Same(&empty, &all[0]) || class.Hash("s", &empty) != class.Hash("s", &all[0]) {
		t.Error("an empty list differs from none")
	}
}

func TestClassHashDoesNotAllocate(t *testing.T) {
	r := freeslot.Requirement{
		Pool: "p", Services: []string{"a", "b"}, Labels: map[string]string{"a": "b", "c": "d"},
		LabelRules: []freeslot.LabelRule{{Label: "a", Operator: "in", Values: []string{"b"}}},
	}
	other := r
	if n := testing.AllocsPerRun(100, func() {
		class.Hash("tts", &r)
		class.Same(&r, &other)
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func BenchmarkClassHash(b *testing.B) {
	for name, r := range map[string]freeslot.Requirement{
		"pool":   {Pool: "pool-17"},
		"pair":   {SourceLanguage: "de-AT", TargetLanguage: "en"},
		"labels": {Pool: "pool-17", Services: []string{"asr"}, Labels: map[string]string{"zone": "eu-1", "gpu": "a100"}},
	} {
		b.Run("requirement="+name, func(b *testing.B) {
			b.ReportAllocs()
			other := r.Clone()
			for b.Loop() {
				if class.Hash("tts", &r) == 0 || !class.Same(&other, &r) {
					b.Fatal("not the same")
				}
			}
		})
	}
}
