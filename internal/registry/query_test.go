package registry

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/figure"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// queryAll is the ids that all pages have, sorted, and the entries by id.
func (r *rig) queryAll(t rapid.TB, service string, f *Filter) (ids []string, entries map[string]*entry) {
	entries = map[string]*entry{}
	for cursor := "0"; ; {
		p, err := r.query(bounded(r.t), service, f, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.entries {
			entries[p.entries[i].ID] = &p.entries[i]
		}
		if cursor = p.cursor; cursor == "0" {
			break
		}
	}
	for id := range entries {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, entries
}

func (r *rig) putRaw(service, id string, fields ...string) {
	r.do("ZADD", r.keys(service).heartbeats(service), "1", id)
	if len(fields) > 0 {
		r.do(append([]string{"HSET", r.keys(service).instance(service, id)}, fields...)...)
	}
}

// Values that numbers and texts are compared by, with those that are nearly numbers.
var oddValues = rapid.SampledFrom([]string{
	"", "a", "b", "west", "0", "-0", "1", "1.0", "01", "+1", "1e0", "10e-1", ".5", "0.5", "5.", "-1", "1e400", "-1e400", "1e-400",
	"9007199254740993", "9007199254740992", "0x10", " 1", "1 ", "inf", "nan", "NaN", "1_0", "1e", "e1", "--1", "ü", "true", "false", "null",
})

var oddJSON = rapid.SampledFrom([]string{
	`0`, `-0`, `1`, `1.0`, `10e-1`, `0.5`, `-1`, `9007199254740993`, `1e-400`, `"1"`, `"a"`, `"west"`, `""`, `"ü"`, `"0x10"`, `" 1"`,
	`true`, `false`, `"true"`, `null`, `{}`, `[1]`, `{"load":1}`,
})

func randomMetrics(t *rapid.T) string {
	if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
		return rapid.SampledFrom([]string{"", "{", "5", "null", `[{"load":1}]`, `"cpu"`, `{"cpu":5}`, `{"cpu":null}`, `{"cpu":[1,2]}`}).Draw(t, "metrics")
	}
	out := "{"
	for i, kind := range []string{"cpu", "db.main", "x"} {
		if i > 0 {
			out += ","
		}
		out += fmt.Sprintf(`%q:{"load":%s,"a.b":%s}`, kind, oddJSON.Draw(t, "load"), oddJSON.Draw(t, "a.b"))
	}
	return out + "}"
}

func randomFilter(t *rapid.T) *Filter {
	rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) freeslot.LabelRule {
		rule := freeslot.LabelRule{
			Label:    rapid.SampledFrom([]string{"zone", "gpus", "none"}).Draw(t, "label"),
			Operator: rapid.SampledFrom(freeslot.LabelOperators()).Draw(t, "operator"),
		}
		switch rule.Operator {
		case freeslot.LabelExists, freeslot.LabelNotExists:
		case freeslot.LabelIn, freeslot.LabelNotIn:
			rule.Values = rapid.SliceOfN(oddValues, 1, 3).Draw(t, "values")
		default:
			rule.Values = rapid.SliceOfN(oddValues, 1, 1).Draw(t, "values")
		}
		return rule
	}).Filter(func(r freeslot.LabelRule) bool { return r.Validate("rule") == nil }), 0, 2).Draw(t, "metadata")
	metrics := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"cpu.load", "cpu.a.b", "db.main", "db.main.load", "x.load", "none.load"}).Draw(t, "figure") + " " +
			rapid.SampledFrom([]string{"<", "<=", ">", ">=", "==", "!="}).Draw(t, "operator") + " " + strconv.Quote(oddValues.Draw(t, "value"))
	}).Filter(func(text string) bool { _, err := figure.Parse("metrics", text); return err == nil }), 0, 2).Draw(t, "metrics")
	f, err := NewFilter(rules, metrics)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Go and Lua take the same instances.
func TestFilterAgreesWithScript(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		service := fmt.Sprint("s", round)
		var instances []*Instance
		for i := range rapid.IntRange(1, 12).Draw(rt, "instances") {
			e := entry{ID: fmt.Sprintf("i%02d", i), Fields: []string{"host", "h", "port", "80", "metrics", randomMetrics(rt)}}
			for _, label := range []string{"zone", "gpus"} {
				if rapid.Bool().Draw(rt, "has "+label) {
					e.Fields = append(e.Fields, "metadata_"+label, oddValues.Draw(rt, label))
				}
			}
			r.putRaw(service, e.ID, e.Fields...)
			instances = append(instances, instanceOf(service, &e))
		}
		for range 4 {
			f := randomFilter(rt)
			var want []string
			for _, in := range instances {
				if f.Takes(in) {
					want = append(want, in.ID)
				}
			}
			if got, _ := r.queryAll(rt, service, f); !slices.Equal(got, want) {
				raw, _ := f.forScript()
				rt.Fatalf("the script takes %v, Go %v, by %s", got, want, raw)
			}
		}
	})
}

// All pages together have each instance, as it is in Redis.
func TestQueryPages(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const n = 700
		for i := range n {
			r.putRaw("asr", fmt.Sprintf("i%04d", i), "host", "h", "port", strconv.Itoa(i+1), "revision", strconv.Itoa(i), "metadata_odd", strconv.Itoa(i%2))
		}
		r.putRaw("asr", "half") // without its hash
		r.do("HSET", r.keys("asr").overrides("asr"), "i0005", `{"weight":2,"author":"ann"}`)
		r.do("HSET", r.keys("asr").record("asr"), "revision", "900")
		p, err := r.query(bounded(t), "asr", nil, "0")
		if err != nil || p.head.Revision != 900 || p.cursor == "0" || len(p.entries) > 2*pageSize {
			t.Fatalf("first page: revision %d, cursor %s, %d entries, %v", p.head.Revision, p.cursor, len(p.entries), err)
		}
		if ids, _ := r.queryAll(t, "asr", nil); len(ids) != n {
			t.Errorf("%d instances, want %d", len(ids), n)
		}
		f, err := NewFilter([]freeslot.LabelRule{{Label: "odd", Operator: freeslot.LabelIn, Values: []string{"1"}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids, entries := r.queryAll(t, "asr", f)
		if len(ids) != n/2 {
			t.Errorf("%d odd instances, want %d", len(ids), n/2)
		}
		in := instanceOf("asr", entries["i0005"])
		if in.Port != 6 || in.Revision != 5 || in.Override == nil || in.Override.Author != "ann" {
			t.Errorf("got %+v", in)
		}
		if ids, _ := r.queryAll(t, "none", f); len(ids) != 0 {
			t.Errorf("a service without instances has %v", ids)
		}
	})
}
