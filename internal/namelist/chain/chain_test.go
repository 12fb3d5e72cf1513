package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// example has one rule of each kind.
const example = `{
	"name": "checkout",
	"attributes": {"country": "string", "age": "integer", "load": "number", "beta": "boolean"},
	"variants": {"new": {"model": "m2"}, "old": null},
	"rules": [
		{"name": "banned", "kind": "in", "list": "banned", "unknown": "stop", "outcome": "deny"},
		{"name": "testers", "kind": "in", "unknown": "skip", "outcome": "variant:new"},
		{"name": "abroad", "kind": "expression", "expression": "country in [\"DE\", \"FR\"] && age >= 18",
			"negate": true, "unknown": "match", "outcome": "variant: old"},
		{"name": "season", "kind": "window", "from": "2026-12-01T00:00:00+01:00", "to": "2026-12-24T00:00:00Z",
			"weekdays": ["SUN", "mon"], "time_zone": "Europe/Berlin", "outcome": "allow"},
		{"name": "canary", "kind": "percentage", "percent": 12.5, "unknown": "stop", "outcome": "variant: new"}
	],
	"default": "deny"
}`

// known is a list of ids by list; a list that is missing is unknown.
type known map[int]map[string]bool

func (k known) Ask(_ context.Context, list int, id string) Membership {
	ids, ok := k[list]
	if !ok {
		return Membership{Why: "timeout"}
	}
	return Membership{Truth: truth(ids[id]), Version: int64(list) + 1, Revision: 7}
}

func parse(t *testing.T, text string) (*Document, *Chain) {
	t.Helper()
	d, c, err := Parse([]byte(text), nil)
	if err != nil {
		t.Fatalf("parse: %v; want a chain", err)
	}
	return d, c
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	_, c := parse(t, example)
	lists := known{0: {"bad": true}, 1: {"ann": true}}
	monday := time.Date(2026, 12, 7, 12, 0, 0, 0, time.UTC)
	adult := map[string]any{"country": "DE", "age": 30}
	for _, test := range []struct {
		about      string
		lists      known
		key        string
		attributes map[string]any
		now        time.Time
		want       string
	}{
		{"a list", lists, "bad", adult, monday, `deny "" by banned: rule; lists [{banned 1 7}]`},
		{
			"the chain's own list", lists, "ann", nil, monday,
			`variant "new" by testers: rule; lists [{banned 1 7} {checkout 2 7}]`,
		},
		{
			"a list that is away stops",
			known{1: {"ann": true}},
			"ann", adult, monday,
			`unknown "" by banned: stopped; lists [{banned 0 0}]; banned: banned  timeout`,
		},
		{
			"a list that is away is skipped",
			known{0: {}},
			"ann", adult, monday,
			`allow "" by season: rule; lists [{banned 1 7} {checkout 0 0}]; testers: checkout  timeout`,
		},
		{
			"an expression", lists, "bob",
			map[string]any{"country": "US", "age": 30},
			monday,
			`variant "old" by abroad: rule; lists [{banned 1 7} {checkout 2 7}]`,
		},
		{
			"an unknown expression matches", lists, "bob",
			map[string]any{"country": "DE"},
			monday,
			`variant "old" by abroad: unknown matches; lists [{banned 1 7} {checkout 2 7}]; abroad:  age the attribute is missing`,
		},
		{
			"no decides beside a missing attribute", lists, "bob",
			map[string]any{"age": 3},
			monday,
			`variant "old" by abroad: rule; lists [{banned 1 7} {checkout 2 7}]`,
		},
		{
			"another type", lists, "bob",
			map[string]any{"country": "DE", "age": "30"},
			monday,
			`variant "old" by abroad: unknown matches; lists [{banned 1 7} {checkout 2 7}]; abroad:  age the attribute has another type than declared`,
		},
		{"a window", lists, "bob", adult, monday, `allow "" by season: rule; lists [{banned 1 7} {checkout 2 7}]`},
		{
			"a weekday by its zone", lists, "bob", adult, time.Date(2026, 12, 12, 23, 30, 0, 0, time.UTC),
			`allow "" by season: rule; lists [{banned 1 7} {checkout 2 7}]`,
		},
		{
			"another weekday", lists, "bob", adult, monday.AddDate(0, 0, 1),
			`deny "" by : default; lists [{banned 1 7} {checkout 2 7}]`,
		},
		{
			"after the window", lists, "bob", adult, monday.AddDate(0, 1, 0),
			`deny "" by : default; lists [{banned 1 7} {checkout 2 7}]`,
		},
		{
			"no key", lists, "", adult, monday, `unknown "" by banned: stopped; lists []; banned:  key the attribute is missing`,
		},
	} {
		d := c.Evaluate(
			t.Context(), Env{Lists: test.lists, Now: test.now}, Subject{Key: test.key, Attributes: test.attributes},
		)
		got := fmt.Sprintf("%s %q by %s: %s; lists %v", d.Result, d.Variant, d.Rule, d.Reason, d.Asked.Versions())
		if d.Doubt != (Doubt{}) {
			got += fmt.Sprintf("; %s: %s %s %s", d.Doubt.Rule, d.Doubt.List, d.Doubt.Attribute, d.Doubt.Why)
		}
		if got != test.want {
			t.Errorf("%s: %s; want %s", test.about, got, test.want)
		}
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	_, c := parse(t, example)
	d := c.Evaluate(t.Context(), Env{Lists: known{0: {}, 1: {"ann": true}}}, Subject{Key: "ann"})
	if string(d.Value) != `{"model":"m2"}` || d.Index != 1 {
		t.Errorf("value %s of rule %d; want the model of rule 1", d.Value, d.Index)
	}
}

// The canonical form is read as the same document, and its digest does not depend on the version.
func TestCanonical(t *testing.T) {
	t.Parallel()
	d, _ := parse(t, example)
	text := Encode(d)
	again, _ := parse(t, string(text))
	if diff := cmp.Diff(string(text), string(Encode(again))); diff != "" {
		t.Errorf("the canonical form changes (-first +second):\n%s", diff)
	}
	again.Version = 7
	if d.Digest() != again.Digest() {
		t.Error("the digest depends on the version; want it to ignore that")
	}
	if r := d.Rules[3]; r.From != "2026-11-30T23:00:00Z" || strings.Join(r.Weekdays, " ") != "mon sun" {
		t.Errorf("from %s on %v; want UTC, and days from Monday", r.From, r.Weekdays)
	}
	*again.Rules[4].Percent = 13
	if d.Digest() == again.Digest() {
		t.Error("the digest does not depend on a percentage; want another one")
	}
}

// All bad fields of a document are named at once.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const bad = `{
		"name": "a_b", "version": -1, "colour": 1, "default": "next",
		"attributes": {"key": "string", "in": "string", "a-b": "string", "when": "time", "on": "boolean", "n": "integer"},
		"variants": {"x y": 1, "v": 1},
		"rules": [
			{"name": "", "kind": "in", "list": "missing", "outcome": "maybe"},
			{"name": "r", "kind": "in", "list": "a_b", "attribute": "on", "unknown": "stop", "outcome": "variant: w", "percent": 1},
			{"name": "r", "kind": "percentage", "percent": 1.005, "unknown": "perhaps", "attribute": "nothing", "outcome": "allow"},
			{"name": "p", "kind": "percentage", "unknown": "stop", "outcome": "allow", "salt": 7},
			{"name": "w", "kind": "window", "from": "today", "to": "2026-01-01T00:00:00Z", "weekdays": ["funday"], "time_zone": "Mars", "unknown": "skip", "outcome": "allow"},
			{"name": "v", "kind": "window", "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z", "outcome": "allow"},
			{"name": "u", "kind": "window", "outcome": "allow"},
			{"name": "e", "kind": "expression", "expression": "n == \"x\"", "unknown": "stop", "outcome": "allow"},
			{"name": "k", "kind": "clock", "outcome": "allow"},
			[]
		]}`
	_, _, err := Parse([]byte(bad), func(list string) bool { return list != "missing" })
	var e *freeslot.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v; want one that names fields", err)
	}
	var got []string
	for _, field := range e.Errors {
		got = append(got, field.Field)
	}
	want := []string{
		"colour", "rules[3].salt", "rules[9]", "name", "version", "attributes.a-b", "attributes.in", "attributes.key",
		"attributes.when", "variants.x y",
		"rules[0].name", "rules[0].list", "rules[0].outcome", "rules[0].unknown",
		"rules[1].outcome", "rules[1].percent", "rules[1].attribute", "rules[1].list",
		"rules[2].name", "rules[2].unknown", "rules[2].attribute", "rules[2].percent", "rules[3].percent",
		"rules[4].unknown", "rules[4].from", "rules[4].weekdays[0]", "rules[4].time_zone", "rules[5].to", "rules[6].from",
		"rules[7].expression", "rules[8].kind", "rules[9].name", "rules[9].outcome", "rules[9].kind", "default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s\n%v", diff, e.Errors)
	}
	for _, text := range []string{``, `[]`, `null`, `{} {}`, `{"name": `, strings.Repeat(" ", MaxBytes) + example} {
		if _, _, err := Parse([]byte(text), nil); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Errorf("%.20q: %v; want invalid_argument", text, err)
		}
	}
}

func TestExpressionRefusals(t *testing.T) {
	t.Parallel()
	attributes := map[string]Type{Key: String, "country": String, "age": Integer, "load": Number, "beta": Boolean}
	for text, want := range map[string]string{
		`  `:                               "is missing",
		`age`:                              "expected bool, but got int",
		`country == 5`:                     "mismatched types",
		`plan == "x"`:                      `names the attribute "plan"`,
		`$env["beta"]`:                     "has $env",
		`age in 1..1000000`:                `uses the operator ".."`,
		`country matches key`:              "no text in quotes",
		`country matches "("`:              "missing closing",
		`let a = age; a > 1`:               "has let",
		`now().Year() > 2020`:              "calls",
		`all([1], # > 0)`:                  "has all",
		`beta ?? true`:                     `uses the operator "??"`,
		`beta == nil`:                      "has nil",
		`country.x == 1`:                   "is refused|has country",
		`country[0:1] == "D"`:              "has country",
		`repeat(country, 100) == ""`:       "calls",
		`{"a": age}.a == 1`:                "has {",
		strings.Repeat("!", 600) + "beta":  "maximum allowed nodes",
		strings.Repeat(" ", 5000) + "beta": "has 5004 bytes",
		`beta and`:                         "is refused at line 1",
	} {
		_, err := compileExpression(text, attributes)
		ok := false
		for _, one := range strings.Split(want, "|") {
			ok = ok || err != nil && strings.Contains(err.Error(), one)
		}
		if !ok {
			t.Errorf("%.40s: %v; want %q", text, err, want)
		}
	}
	for text, want := range map[string]Truth{
		`country == "DE" || beta`:                               True, // beta is missing
		`beta || country == "DE"`:                               True,
		`beta && country == "DE"`:                               Unknown,
		`beta && country == "FR"`:                               False,
		`not (beta and country == "FR")`:                        True,
		`age % 0 == 1`:                                          Unknown,
		`age % 0 == 1 || country == "DE"`:                       True,
		`country not in ["FR", "IT"] && age > 18 && load < 0.5`: True,
		`lower(country) matches "^d[e]$"`:                       True,
		`beta ? true : true`:                                    Unknown,
		`max(age, 40) == 40 && 18 < age < 65`:                   True,
		`key startsWith "user-" && len(key) == 6`:               True,
	} {
		e, err := compileExpression(text, attributes)
		if err != nil {
			t.Errorf("%s: %v; want no error", text, err)
			continue
		}
		got, _, _ := e.holds(&Subject{
			Key: "user-1", Attributes: map[string]any{"country": "DE", "age": int64(30), "load": float32(0.25)},
		})
		if got != want {
			t.Errorf("%s is %d; want %d", text, got, want)
		}
	}
}

// Other languages copy these: docs/namelist.md has them, too.
func TestBuckets(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		salt, text string
		want       int
	}{
		{"checkout", "user-1", 6705},
		{"checkout", "user-2", 9355},
		{"other", "user-1", 5868},
		{"checkout", "12345", 8260},
		{"checkout", "ümlaut", 3527},
	} {
		if got := Bucket(v.salt, v.text); got != v.want {
			t.Errorf("bucket of %q with %q is %d; want %d", v.text, v.salt, got, v.want)
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	before, _ := parse(t, example)
	after, _ := parse(t, example)
	if got := Diff(before, after); len(got) != 0 {
		t.Errorf("a document differs from itself: %v; want nothing", got)
	}
	*after.Rules[4].Percent = 20
	after.Rules[0], after.Rules[1] = after.Rules[1], after.Rules[0]
	after.Rules = append(after.Rules[:2], after.Rules[3:]...)
	after.Default, after.Variants["third"] = Allow, json.RawMessage(`1`)
	delete(after.Attributes, "load")
	var got []string
	for _, c := range Diff(before, after) {
		got = append(got, c.String())
	}
	want := []string{
		`- attributes.load: "number"`,
		`+ variants.third: 1`,
		`- rules.abroad: {"name":"abroad","kind":"expression","negate":true,"unknown":"match","outcome":"variant: old","expression":"country in [\"DE\", \"FR\"] && age >= 18"}`,
		`~ rules.canary.percent: 12.5 -> 20`,
		`~ rules: ["banned","testers","abroad","season","canary"] -> ["testers","banned","season","canary"]`,
		`~ default: "deny" -> "allow"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}
