package collector

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func nan() float64 { return math.NaN() }

func TestSnapshotAsJSON(t *testing.T) {
	t.Parallel()
	s := Snapshot{}
	for name, m := range map[string]Metrics{
		"memory": {"usage": 0.5, "total_bytes": int64(1 << 40), "tiny": 1e-9, "huge": 1e22},
		"gpu":    {"name": "A \"B\" <C>\n", "present": true, "count": 2, "bad": nan(), "odd": []int{1}},
		"empty":  {},
	} {
		s[name], _ = clean(m)
	}
	want := `{"empty":{},"gpu":{"count":2,"name":"A \"B\" \u003cC\u003e\n","present":true},` +
		`"memory":{"huge":1e+22,"tiny":1e-9,"total_bytes":1099511627776,"usage":0.5}}`
	if got, err := json.Marshal(s); string(got) != want || err != nil || s.jsonSize() != len(want) {
		t.Errorf("got      %s, %v\nexpected %s", got, err, want)
	}
	if diff := cmp.Diff(map[string]any{"a.b": 1, "a.c": true, "d.b": "x"}, Snapshot{"a": {"b": 1, "c": true}, "d": {"b": "x"}}.Flat()); diff != "" {
		t.Errorf("flat (- expected, + got):\n%s", diff)
	}
	if flat := Snapshot(nil).Flat(); flat == nil || len(flat) != 0 {
		t.Errorf("flat of nothing: %v", flat)
	}
}

func TestCleanFiguresAreJSON(t *testing.T) {
	t.Parallel()
	value := rapid.OneOf(rapid.Float64().AsAny(), rapid.Int64().AsAny(), rapid.Int().AsAny(), rapid.Bool().AsAny(), rapid.String().AsAny(), rapid.Byte().AsAny())
	rapid.Check(t, func(t *rapid.T) {
		m := Metrics(rapid.MapOf(rapid.OneOf(rapid.StringMatching(`[a-z][a-z0-9_]{0,9}`), rapid.String()), value).Draw(t, "metrics"))
		cleaned, dropped := clean(m)
		if len(cleaned) < len(m) && len(dropped) == 0 {
			t.Fatalf("of %v only %v is left, without a reason", m, cleaned)
		}
		raw, err := json.Marshal(Snapshot{"x": cleaned})
		if err != nil {
			t.Fatal(err)
		}
		if got := decoded(t, raw); len(got["x"]) != len(cleaned) {
			t.Fatalf("got %s, expected %v", raw, cleaned)
		}
	})
}

func decoded(t *rapid.T, raw []byte) map[string]map[string]any {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	var v map[string]map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v; want no error", raw, err)
	}
	return v
}
