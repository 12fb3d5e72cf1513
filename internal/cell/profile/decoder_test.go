package profile

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// plain is what Decode does, slowly: every field of every node by itself. errs counts
// the fields that are not JSON or not valid.
func plain(t Text) (n freeslot.Node, errs int) {
	field := func(text string, target func(*freeslot.Node) any, take func(*freeslot.Node)) {
		one := freeslot.Node{ID: "n", MaxConcurrency: 1}
		if text != "" && json.Unmarshal([]byte(text), target(&one)) != nil {
			errs++
			return
		}
		Normalize(&one)
		if one.Validate("node") != nil {
			errs++
			return
		}
		take(&one)
	}
	field(t.Languages, func(o *freeslot.Node) any { return &o.Languages }, func(o *freeslot.Node) { n.Languages = o.Languages })
	field(t.Services, func(o *freeslot.Node) any { return &o.Services }, func(o *freeslot.Node) { n.Services = o.Services })
	field(t.Pools, func(o *freeslot.Node) any { return &o.Pools }, func(o *freeslot.Node) { n.Pools = o.Pools })
	field(t.Labels, func(o *freeslot.Node) any { return &o.Labels }, func(o *freeslot.Node) { n.Labels = o.Labels })
	field(t.Features, func(o *freeslot.Node) any { return &o.Features }, func(o *freeslot.Node) { n.Features = o.Features })
	return n, errs
}

// same compares what a decoder that has read much says of t with what plain says.
func same(t *testing.T, d *Decoder, text Text) {
	t.Helper()
	var got freeslot.Node
	err := d.Decode(&got, text)
	want, errs := plain(text)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%+v: -plain +decoder\n%s", text, diff)
	}
	count := 0
	if err != nil {
		count = len(err.(interface{ Unwrap() []error }).Unwrap())
	}
	if count != errs {
		t.Errorf("%+v: %d fields are refused, expected %d: %v", text, count, errs, err)
	}
}

// TestDecoderAgreesWithPlainDecoding: in any order, whatever was read before, whole
// profiles and broken ones.
func TestDecoderAgreesWithPlainDecoding(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", "null", "{}", "[]", "{ no", `["b","a","b"]`, `["a","b"]`, `[" "]`, `{"zone":"eu-1"}`, `{"zone":"eu-2","gpu":"T4"}`, `{"zone":true}`,
		`[{"name":"asr","version":"1"}]`, `[{"name":"a:b"}]`, `{"asr_languages":["de","pt-BR"]}`, `{"asr_languages":["no language"]}`, "7",
	}
	one := func() string { return texts[rand.N(len(texts))] }
	d := NewDecoder()
	for range 1000 {
		same(t, d, Text{Languages: one(), Services: one(), Pools: one(), Labels: one(), Features: one()})
	}
}

// What is kept is bounded, in number and in size.
func TestDecoderIsBounded(t *testing.T) {
	t.Parallel()
	d := NewDecoder()
	var n freeslot.Node
	for i := range textsKept + 10 {
		if err := d.Decode(&n, Text{Pools: fmt.Sprintf(`["pool-%d"]`, i)}); err != nil {
			t.Fatal(err)
		}
	}
	same(t, d, Text{Pools: fmt.Sprintf(`["pool-%d"]`, textsKept+5)})
	if len(d.pools.known) != textsKept {
		t.Errorf("%d texts are kept, expected %d", len(d.pools.known), textsKept)
	}
	long := `["a"` + strings.Repeat(" ", longestKept) + `]`
	same(t, d, Text{Services: "[]", Labels: long})
	if _, ok := d.labels.known[long]; ok {
		t.Error("a long text is kept")
	}
}

// Equal texts become one list; profiles of different decoders share strings only.
func TestDecoderShares(t *testing.T) {
	t.Parallel()
	text := Text{Pools: `["a","b"]`, Services: `[{"name":"asr"}]`}
	d := NewDecoder()
	var a, b, other freeslot.Node
	for _, err := range []error{d.Decode(&a, text), d.Decode(&b, text), NewDecoder().Decode(&other, text)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if &a.Pools[0] != &b.Pools[0] || &a.Services[0] != &b.Services[0] {
		t.Error("equal lists are there twice")
	}
	if &a.Pools[0] == &other.Pools[0] || unsafe.StringData(a.Pools[0]) != unsafe.StringData(other.Pools[0]) {
		t.Error("decoders share lists, or do not share strings")
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(`{"asr_languages":["de"]}`, `[{"name":"asr","version":"1.2"}]`, `["b","a"]`, `{"zone":"eu"}`, `{"x":true}`)
	f.Add(`{ no`, `null`, ``, `[]`, `{"x":1}`)
	f.Fuzz(func(t *testing.T, languages, services, pools, labels, features string) {
		text := Text{languages, services, pools, labels, features}
		fresh := NewDecoder()
		same(t, fresh, text)
		same(t, fresh, text) // what it has kept
	})
}
