package class_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// TestClassID: what is of one class has one id, anything else another.
func TestClassID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := genRequirement(t), genRequirement(t)
		services := rapid.SampledFrom([]string{"a", "b", "tts"})
		forA, forB := services.Draw(t, "service of a"), services.Draw(t, "service of b")
		idA, idB := class.ID(forA, &a), class.ID(forB, &b)
		if same := canonical(a, forA) == canonical(b, forB); (idA == idB) != same {
			t.Fatalf("%s for %s with %+v and %s for %s with %+v: one class is %t", idA, forA, a, idB, forB, b, same)
		}
		if len(idA) != freeslot.ClassIDLength || freeslot.ValidateName("class", idA) != nil {
			t.Fatalf(`%q; want len(idA) == freeslot.ClassIDLength, freeslot.ValidateName("class", idA) == nil`, idA)
		}
	})
}

// Ids are kept in Redis: another release must make the same.
func TestClassIDStays(t *testing.T) {
	t.Parallel()
	rich := freeslot.Requirement{
		Pool: "p", PreferredPool: "q", Services: []string{"asr@<2, >=1.2", "asr", "tts"}, SourceLanguage: "de_AT",
		Labels:     map[string]string{"zone": "eu", "a": ""},
		LabelRules: []freeslot.LabelRule{{Label: "gpu", Operator: "in", Values: []string{"T4", "A100"}}},
	}
	respelled := rich
	respelled.Services, respelled.SourceLanguage = []string{"tts", "asr@>=1.2 <2"}, "DE-at"
	for _, c := range []struct {
		service string
		r       freeslot.Requirement
		want    string
	}{
		{"tts", freeslot.Requirement{}, "263ba84df4d365a9"},
		{"tts", rich, "cdf257310002f96b"},
		{"tts", respelled, "cdf257310002f96b"},
	} {
		if got := class.ID(c.service, &c.r); got != c.want {
			t.Errorf("%s with %+v is %s, expected %s", c.service, c.r, got, c.want)
		}
	}
}
