package server

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist/chain"
)

// TestEvaluations: a tenant has a part of the places, so that others find some, and a place that is
// left can be taken again.
func TestEvaluations(t *testing.T) {
	t.Parallel()
	var e evaluations
	var leaves []func()
	take := func(tenant string, want freeslot.Code) {
		t.Helper()
		leave, err := e.enter(tenant)
		if freeslot.CodeOf(err) != want {
			t.Errorf("a place for %s: %v; want code %q", tenant, err, want)
		}
		if err == nil {
			leaves = append(leaves, leave)
		}
	}
	for range tenantEvaluations {
		take("greedy", "")
	}
	take("greedy", freeslot.CodeOverloaded)
	for _, tenant := range []string{"a", "b", "c"} {
		for range tenantEvaluations {
			take(tenant, "")
		}
	}
	take("d", freeslot.CodeOverloaded) // the replica is full
	leaves[0]()
	leaves = leaves[1:]
	take("d", "")
	for _, leave := range leaves {
		leave()
	}
	if e.all != 0 || len(e.by) != 0 {
		t.Errorf("%d places and tenants %v are left; want none", e.all, e.by)
	}
}

// A comparison takes a place, too: without one, its answers would be unknown for lack of calls.
func TestComparisonsTakePlaces(t *testing.T) {
	t.Parallel()
	r := &routes{}
	for range tenantEvaluations {
		if _, err := r.evaluations.enter("acme"); err != nil {
			t.Fatal(err)
		}
	}
	in := &chainBodyInput{OfChain{"checkout"}, []byte(`{"document": {}, "subjects": [{"key": "a"}]}`)}
	if _, err := r.compared(t.Context(), "acme", in); freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		t.Errorf("a comparison without a place: %v; want overloaded", err)
	}
}

// An attribute that no document declares is refused by its name, and the declared ones are named.
func TestUndeclaredAttributes(t *testing.T) {
	t.Parallel()
	const one, other = `{"attributes":{"age":"integer"}}`, `{"attributes":{"country":"string"}}`
	with := func(names ...string) []chain.Subject {
		s := chain.Subject{Key: "a", Attributes: map[string]any{}}
		for _, name := range names {
			s.Attributes[name] = nil
		}
		return []chain.Subject{{Key: "first"}, s}
	}
	for _, c := range []struct {
		of        []chain.Subject
		documents []string
		want      string
	}{
		{with(), []string{`{}`}, ""},
		{with("age", "country"), []string{one, other}, ""},
		{with("age"), []string{one, ""}, ""},
		{with("ages"), []string{other, one}, "subjects[1].attributes.ages is not declared by the chain, expected age, country"},
		{with("age"), []string{`{}`}, "subjects[1].attributes.age is not declared by the chain, expected none: the chain declares no attributes"},
	} {
		err := declared(c.of, c.documents...)
		if c.want == "" && err != nil || c.want != "" && (freeslot.CodeOf(err) != freeslot.CodeInvalidArgument || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v by %v: %v; want %q", c.of, c.documents, err, c.want)
		}
	}
}
