package cache

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// With any remembered requirements, a requirement finds the class of its canonical form: also when
// many differ by labels alone, in values, in names or in their number.
func TestLookupAgreesWithCanonicalForm(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	name := rapid.SampledFrom([]string{"a", "b", "ab", "gpu"})
	value := rapid.StringMatching("[ab]{0,3}")
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 40).Draw(t, "requirements") {
			service := name.Draw(t, "service")
			asked := freeslot.Requirement{
				Pool: rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "pool"), PreferredPool: rapid.SampledFrom([]string{"", "", "b", "bc"}).Draw(t, "preferred pool"),
				Services: rapid.SliceOfN(name, 0, 2).Draw(t, "services"), Labels: rapid.MapOfN(name, value, 0, 3).Draw(t, "labels"),
			}
			for range 2 { // the second time it is remembered
				if got, want := r.class(service, &asked), r.canonical(service, &asked); got != want {
					t.Fatalf("%s with %+v: got the class of %s", service, asked, got.identity.Definition())
				}
			}
		}
	})
}

// Clients may state any number of requirements: past the limit all are forgotten, and each
// still finds its class.
func TestLookupsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	for i := range lookupLimit + 10 {
		// One class in so many words: a repetition makes no difference.
		asked := freeslot.Requirement{Services: []string{"a", "a", "b"}[:1+i%3], SourceLanguage: spelling(i)}
		if got, want := r.class("echo", &asked), r.canonical("echo", &asked); got != want {
			t.Fatalf("%+v: got the class of %s", asked, got.identity.Definition())
		}
	}
	if n := r.lookups.Size(); n > lookupLimit {
		t.Errorf("%d requirements are remembered, want at most %d", n, lookupLimit)
	}
}

// spelling is the i-th way to write one language tag.
func spelling(i int) string {
	tag := []byte("abcdefgh-abcdefgh")
	for bit := range tag {
		if tag[bit] != '-' && i>>bit&1 == 1 {
			tag[bit] -= 'a' - 'A'
		}
	}
	return string(tag)
}

// What is remembered must not change with the requirement that it was made from.
func TestLookupKeepsNothingThatChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	asked := freeslot.Requirement{
		Services: []string{"a"}, Labels: map[string]string{"zone": "1"},
		LabelRules: []freeslot.LabelRule{{Label: "gpu", Operator: freeslot.LabelIn, Values: []string{"x"}}},
		Features:   []string{"a"},
	}
	same := asked.Clone()
	want := r.class("echo", &asked)
	asked.Services[0], asked.Labels["zone"], asked.LabelRules[0].Values[0] = "b", "2", "y"
	asked.Features[0] = "b"
	if r.class("echo", &same) != want || r.class("echo", &asked) == want {
		t.Error("the class of a requirement changed with another one")
	}
}
