package chain

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Over a million keys all buckets are equally likely, and those of two salts have nothing to do
// with each other: chi-square is within six standard deviations of its mean.
func TestBucketsAreEven(t *testing.T) {
	t.Parallel()
	const keys = 1_000_000
	var counts [Buckets]int
	var pairs [10][10]int
	for i := range keys {
		key := fmt.Sprintf("user-%d", i)
		one := Bucket("one", key)
		counts[one]++
		pairs[one*10/Buckets][Bucket("two", key)*10/Buckets]++
	}
	chi := func(counts []int) float64 {
		expected, sum := float64(keys)/float64(len(counts)), 0.0
		for _, n := range counts {
			sum += (float64(n) - expected) * (float64(n) - expected) / expected
		}
		return (sum - float64(len(counts)-1)) / math.Sqrt(2*float64(len(counts)-1))
	}
	if off := chi(counts[:]); math.Abs(off) > 6 {
		t.Errorf("chi-square of the buckets is off by %.1f standard deviations; want less than 6", off)
	}
	var flat []int
	for i := range pairs {
		flat = append(flat, pairs[i][:]...)
	}
	if off := chi(flat); math.Abs(off) > 6 {
		t.Errorf("chi-square of two salts is off by %.1f standard deviations; want less than 6", off)
	}
}

// Raising 10 % to 20 % moves no key out, and no other version of the chain moves one either.
func TestPercentageIsSticky(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	at := func(percent, more string) *Chain {
		_, c := parse(t, `{"name": "canary", "rules": [`+more+`{"name": "r", "kind": "percentage", "percent": `+percent+`, "unknown": "stop", "outcome": "allow"}], "default": "deny"}`)
		return c
	}
	chains := []*Chain{
		at("0", ""), at("10", ""), at("20", `{"name": "before", "kind": "window", "to": "2000-01-01T00:00:00Z", "outcome": "deny"},`), at("100", ""),
	}
	in := make([]int, len(chains))
	for i := range keys {
		before := Denied
		for n, c := range chains {
			d := c.Evaluate(t.Context(), Env{}, Subject{Key: fmt.Sprintf("user-%d", i)})
			if before == Allowed && d.Result != Allowed {
				t.Fatalf("user-%d is in a smaller percentage and not in number %d; want it in", i, n)
			}
			if before = d.Result; before == Allowed {
				in[n]++
			}
		}
	}
	for n, want := range []float64{0, 0.1, 0.2, 1} {
		if share := float64(in[n]) / keys; math.Abs(share-want) > 0.005 {
			t.Errorf("%.4f of the keys are in; want %.4f", share, want)
		}
	}
}

// formula is a random expression, with a slow twin.
type formula struct {
	text string
	of   func(world) bool
}

// world is a value of each attribute.
type world struct {
	a, b bool
	n    int
	s    string
}

var atoms = []formula{
	{"a", func(w world) bool { return w.a }},
	{"b", func(w world) bool { return w.b }},
	{"n > 3", func(w world) bool { return w.n > 3 }},
	{`s == "x"`, func(w world) bool { return w.s == "x" }},
	{`s in ["x", "z"] == b`, func(w world) bool { return (w.s == "x") == w.b }},
	{"true", func(world) bool { return true }},
	{"(n == 4 ? a : b)", func(w world) bool { return w.n == 4 && w.a || w.n != 4 && w.b }},
}

func draw(t *rapid.T, depth int) formula {
	if depth == 0 {
		return rapid.SampledFrom(atoms).Draw(t, "atom")
	}
	left := draw(t, depth-1)
	switch op := rapid.SampledFrom([]string{"", "not", "!", "and", "&&", "or", "||"}).Draw(t, "operator"); op {
	case "":
		return left
	case "not", "!":
		return formula{op + " (" + left.text + ")", func(w world) bool { return !left.of(w) }}
	default:
		right := draw(t, depth-1)
		return formula{"(" + left.text + ") " + op + " (" + right.text + ")", func(w world) bool {
			if op == "and" || op == "&&" {
				return left.of(w) && right.of(w)
			}
			return left.of(w) || right.of(w)
		}}
	}
}

// An expression with all attributes is what its twin says. With some of them missing it is unknown,
// or what it is for all values that they could have.
func TestThreeTruths(t *testing.T) {
	t.Parallel()
	types := map[string]Type{Key: String, "a": Boolean, "b": Boolean, "n": Integer, "s": String}
	known := 0
	rapid.Check(t, func(t *rapid.T) {
		f := draw(t, rapid.IntRange(0, 3).Draw(t, "depth"))
		e, err := compileExpression(f.text, types)
		if err != nil {
			t.Fatalf("%s: %v; want no error", f.text, err)
		}
		missing := rapid.IntRange(0, 15).Draw(t, "missing")
		answers := make(map[bool]bool)
		var partial Subject
		for i := range 16 {
			w := world{a: i&1 != 0, b: i&2 != 0, n: 3 + i>>2&1, s: []string{"x", "y"}[i>>3]}
			all := map[string]any{"a": w.a, "b": w.b, "n": w.n, "s": w.s}
			if got, _, _ := e.holds(&Subject{Attributes: all}); got != truth(f.of(w)) {
				t.Fatalf("%s is %d for %v; want %v", f.text, got, all, f.of(w))
			}
		}
		fixed := rapid.IntRange(0, 15).Draw(t, "values") &^ missing
		partial.Attributes = make(map[string]any)
		for i := range 16 {
			if i&^missing != fixed {
				continue
			}
			w := world{a: i&1 != 0, b: i&2 != 0, n: 3 + i>>2&1, s: []string{"x", "y"}[i>>3]}
			answers[f.of(w)] = true
			for bit, v := range []any{w.a, w.b, w.n, w.s} {
				if missing&(1<<bit) == 0 {
					partial.Attributes[[]string{"a", "b", "n", "s"}[bit]] = v
				}
			}
		}
		got, attribute, why := e.holds(&partial)
		if got != Unknown {
			known++
			if len(answers) != 1 || !answers[got == True] {
				t.Fatalf("%s is %d for %v; want unknown: it can be %v", f.text, got, partial.Attributes, answers)
			}
		} else if attribute == "" || why == "" {
			t.Fatalf("%s is unknown for %v for no reason; want an attribute", f.text, partial.Attributes)
		}
	})
	if known == 0 {
		t.Error("no expression with missing attributes is known; want some")
	}
}

// A document that is taken has a canonical form that is taken as well, and can be evaluated.
func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add(`{"name":"a","attributes":{"s":"string","n":"integer"},"rules":[{"name":"e","kind":"expression","unknown":"skip","outcome":"next","expression":"s matches \"^a\" or n ** 2 > 3 ? true : len(s) == max(1, n)"}],"default":"allow"}`)
	f.Add(`{"name":"a","rules":[{"name":"w","kind":"window","from":"2026-01-01T00:00:00+14:00","weekdays":["fri"],"time_zone":"Asia/Kolkata","negate":true,"outcome":"deny"}],"default":"variant: x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, c, err := Parse([]byte(text), nil)
		if err != nil {
			return
		}
		again, _, err := Parse(Encode(d), nil)
		if err != nil || string(Encode(again)) != string(Encode(d)) {
			t.Fatalf("%s is read again as %v, %v; want the same", Encode(d), again, err)
		}
		for _, s := range []Subject{{}, {Key: "a", Attributes: map[string]any{"s": strings.Repeat("a", 100), "n": -1, "b": true}}} {
			c.Evaluate(t.Context(), Env{Lists: known{}, Now: time.Unix(1800000000, 0)}, s)
		}
	})
}
