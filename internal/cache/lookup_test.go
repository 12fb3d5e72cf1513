package cache

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redistest"
)

// Whatever is remembered, a requirement finds the class of its canonical form: also
// when many differ by labels alone, in values, in names or in their number.
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

// Up to eight sets of labels lie in one place, where no map has to be gone through;
// the others have places of their own.
func TestLookupVariants(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	places := func() (count, variants int) {
		for i := range r.lookups {
			for j := range r.lookups[i] {
				if l := r.lookups[i][j].Load(); l != nil {
					count, variants = count+1, variants+len(l.variants)
				}
			}
		}
		return count, variants
	}
	ask := func(labels map[string]string) {
		t.Helper()
		asked := freeslot.Requirement{Pool: "p", Labels: labels}
		want := r.class("echo", &asked)
		changed := freeslot.Requirement{Pool: "p"}
		if again := r.class("echo", &asked); again != want || r.class("echo", &changed) == want && len(labels) > 0 {
			t.Errorf("%v: two classes, or that without labels", labels)
		}
	}
	ask(nil)
	for i := range lookupVariants {
		ask(map[string]string{"zone": fmt.Sprint(i)})
	}
	if count, variants := places(); count != 1 || variants != lookupVariants {
		t.Errorf("%d places with %d sets of labels, want 1 with %d", count, variants, lookupVariants)
	}
	ask(map[string]string{"zone": "another"})
	ask(map[string]string{"gpu": "0"})
	ask(map[string]string{"zone": "0", "gpu": "0"})
	if count, variants := places(); count < 2 || variants != lookupVariants+3 {
		t.Errorf("%d places with %d sets of labels, want several with %d", count, variants, lookupVariants+3)
	}
}

// What is remembered must not change with the requirement that it was made from.
func TestLookupKeepsNothingThatChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	asked := freeslot.Requirement{
		Services: []string{"a"}, Labels: map[string]string{"zone": "1"},
		LabelRules: []freeslot.LabelRule{{Label: "gpu", Operator: freeslot.LabelIn, Values: []string{"x"}}},
	}
	same := asked.Clone()
	want := r.class("echo", &asked)
	asked.Services[0], asked.Labels["zone"], asked.LabelRules[0].Values[0] = "b", "2", "y"
	if r.class("echo", &same) != want || r.class("echo", &asked) == want {
		t.Error("the class of a requirement changed with another one")
	}
}
