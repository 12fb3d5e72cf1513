package count

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestReportText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Report{
			Incarnation: rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,20}`).Draw(t, "incarnation"),
			AgeMS:       rapid.Int64Range(0, maxCount).Draw(t, "age"),
		}
		for i := range r.Counts {
			r.Counts[i] = rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, maxCount)).Draw(t, Names[i])
		}
		text := r.String()
		got, err := ParseReport(text)
		if err != nil || got != r || len(text) > MaxText {
			t.Fatalf("%q, of %d bytes, is read as %+v, %v; want %+v of at most %d bytes", text, len(text), got, err, r, MaxText)
		}
		hits, misses, unknown := r.Counts.Results()
		plain := r.Counts.Plain()
		if h, m, u := plain.Results(); h != hits || m != misses || u != unknown {
			t.Fatalf("without detail %d, %d, %d; want %d, %d, %d", h, m, u, hits, misses, unknown)
		}
	})
}

func TestParseReport(t *testing.T) {
	t.Parallel()
	got, err := ParseReport("web-1 filter_no=3 from_later=9 age_ms=5 redis_yes=1")
	want := Report{Incarnation: "web-1", AgeMS: 5}
	want.Counts[FilterNo], want.Counts[RedisYes] = 3, 1
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"": "begins with", " a=1": "begins with", "a  b=1": `has ""`, "a b": `has "b"`, "a b=-1": "name=number",
		"a =1":                 "name=number",
		"a b=9007199254740993": "name=number", "a" + strings.Repeat(" b=1", MaxText): "at most",
	} {
		if _, err := ParseReport(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v; want an error with %q", text, err, want)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add("web-1 filter_no=3 age_ms=5")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReport(text)
		if err != nil {
			return
		}
		if again, err := ParseReport(r.String()); err != nil || again != r {
			t.Errorf("%q is read as %+v, and again as %+v, %v; want the same", text, r, again, err)
		}
	})
}
