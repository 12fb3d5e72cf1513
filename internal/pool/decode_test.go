package pool

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// fields are the bad fields that err names.
func fields(err error) []string {
	var e *freeslot.Error
	if !errors.As(err, &e) || e.Code != freeslot.CodeInvalidArgument {
		return []string{fmt.Sprintf("%v", err)}
	}
	var out []string
	for _, f := range e.Errors {
		if !strings.HasPrefix(f.Message, f.Field) {
			out = append(out, "message: "+f.Message)
		}
		out = append(out, f.Field)
	}
	return out
}

// TestDecodeNamesEveryBadField: unknown keys, wrong types and bad values, all at once.
func TestDecodeNamesEveryBadField(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string][]string{
		"":                                  {"config"},
		"  ":                                {"config"},
		"{":                                 {"config"},
		"[]":                                {"config"},
		"7":                                 {"config"},
		"null":                              {"config"},
		`{"enabled":true} x`:                {"config"},
		`{"enabled":true}{}`:                {"config"},
		`{"enabled":"yes please"}`:          {"config.enabled"},
		`{"enabled":1}`:                     {"config.enabled"},
		`{"enable":true,"mod":"flat"}`:      {"config.enable", "config.mod"},
		`{"mode":"round","policy":"x"}`:     {"config.mode", "config.policy"},
		`{"mode":7,"pools":{"id":"a"}}`:     {"config.mode", "config.pools"},
		`{"pools":[7,"a",null]}`:            {"config.pools[0]", "config.pools[0].id", "config.pools[1]", "config.pools[1].id", "config.pools[2].id"},
		`{"pools":[{"id":"a"},{"id":"a"}]}`: {"config.pools[1].id"},
		`{"mode":"round","pools":[{"id":"a b","labels":{"x y":"1"}},{"id":"b","source_languages":["de","d e"]},{"id":"c","services":"tts"},{"id":"d","zone":"x"}]}`: {
			"config.mode", "config.pools[0].id", "config.pools[0].labels name", "config.pools[1].source_languages[1]", "config.pools[2].services", "config.pools[3].zone",
		},
	} {
		_, err := Decode([]byte(doc))
		got := fields(err)
		slices.Sort(got)
		slices.Sort(want)
		if missing := slices.DeleteFunc(slices.Clone(want), func(f string) bool { return slices.Contains(got, f) }); len(missing) > 0 {
			t.Errorf("%s: %v are not among %v", doc, missing, got)
		}
		if extra := slices.DeleteFunc(slices.Clone(got), func(f string) bool { return slices.Contains(want, f) || strings.HasPrefix(f, "config.pools[0].") }); len(extra) > 0 {
			t.Errorf("%s: %v are not expected", doc, extra)
		}
	}
}

func TestDecodeManyErrors(t *testing.T) {
	t.Parallel()
	cfg := pools()
	for range 2 * freeslot.MaxFieldErrors {
		cfg.Pools = append(cfg.Pools, selection.Pool{ID: "no name"})
	}
	_, err := Decode(encodeInvalid(cfg))
	var e *freeslot.Error
	if !errors.As(err, &e) || len(e.Errors) != freeslot.MaxFieldErrors || e.Field != e.Errors[0].Field || !strings.HasSuffix(e.Message, fmt.Sprintf("(and %d more)", 2*freeslot.MaxFieldErrors-1)) {
		t.Errorf("%v: %d errors", err, len(e.Errors))
	}
}

func encodeInvalid(cfg *selection.Config) []byte { return Encode(cfg) }

func TestDecodeEnabled(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]bool{
		`{}`:                                     false,
		`{"pools":[]}`:                           false,
		`{"pools":[{"id":"a"}]}`:                 true,
		`{"enabled":false,"pools":[{"id":"a"}]}`: false,
		`{"enabled":true}`:                       true,
	} {
		cfg, err := Decode([]byte(doc))
		if err != nil || cfg.Enabled != want {
			t.Errorf("%s: %+v, %v; want enabled %t", doc, cfg, err, want)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	cfg, err := Decode([]byte(` {"enabled": true, "version": 456, "pools": [{"id": "a", "labels": {"zone": "<eu>"}, "source_languages": ["zh"], "target_languages": ["en", "de"]}]} `))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Mode != selection.ModeTwoLevel || cfg.Policy != selection.PolicyLeastLoaded || cfg.Pools[0].Labels["zone"] != "<eu>" {
		t.Errorf(`%+v; want cfg.Mode == selection.ModeTwoLevel, cfg.Policy == selection.PolicyLeastLoaded, cfg.Pools[0].Labels["zone"] == "<eu>"`, cfg)
	}
	again, err := Decode(Encode(cfg))
	if d := cmp.Diff(text(cfg), text(again)); d != "" || err != nil {
		t.Error(d, err)
	}
	index, err := pairs(cfg)
	if d := cmp.Diff(map[string]string{"zh:en": "a", "zh:de": "a"}, index); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, doc := range []string{"{}", `{"enabled":false}`, `{"enabled":false,"pools":null,"mode":"two_level"}`} {
		cfg, err := Decode([]byte(doc))
		if err != nil || text(cfg) != text(&selection.Config{}) || !strings.Contains(text(cfg), `"pools":[]`) {
			t.Errorf("%s: %s %v; want no error, text(cfg) == text(&selection.Config{}), strings.Contains(text(cfg), `\"pools\":[]`)", doc, text(cfg), err)
		}
	}
}

func TestTooManyPairs(t *testing.T) {
	t.Parallel()
	var tags []string
	for a := 'a'; a <= 'z'; a++ {
		for b := 'a'; b <= 'z' && len(tags) < freeslot.MaxLanguages; b++ {
			tags = append(tags, "en-x-"+string(a)+string(b))
		}
	}
	cfg := pools("a")
	cfg.Pools[0].SourceLanguages, cfg.Pools[0].TargetLanguages = tags, tags[:maxPairs/len(tags)]
	if _, err := Decode(Encode(cfg)); err != nil {
		t.Error(err)
	}
	cfg.Pools[0].TargetLanguages = tags[:maxPairs/len(tags)+1]
	if _, err := Decode(Encode(cfg)); !slices.Equal(fields(err), []string{"config.pools"}) {
		t.Error(err)
	}
	for i := range 40 {
		cfg.Pools = append(cfg.Pools, selection.Pool{ID: fmt.Sprint(i), SourceLanguages: tags, TargetLanguages: tags})
	}
	if _, err := Decode(Encode(cfg)); !slices.Equal(fields(err), []string{"config.pools"}) {
		t.Error(err)
	}
}

// TestNames: Decode goes by one tag and Encode by the other.
func TestNames(t *testing.T) {
	t.Parallel()
	var check func(t *testing.T, typ reflect.Type)
	check = func(t *testing.T, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name != f.Tag.Get("koanf") {
				t.Errorf("%s.%s is %q in JSON and %q in configuration files", typ, f.Name, name, f.Tag.Get("koanf"))
			}
			elem := f.Type
			for elem.Kind() == reflect.Slice || elem.Kind() == reflect.Pointer {
				elem = elem.Elem()
			}
			if elem.Kind() == reflect.Struct {
				check(t, elem)
			}
		}
	}
	check(t, reflect.TypeFor[selection.Config]())
}

// FuzzDecode: nothing panics; what is accepted has one canonical form, is valid, and
// can be indexed.
func FuzzDecode(f *testing.F) {
	for _, doc := range []string{
		`{"enabled":true,"mode":"flat","policy":"binpack","pools":[{"id":"a","services":["tts"],"labels":{"x":"y"}}],"version":7}`,
		`{"pools":[{"id":"a","source_languages":["zh","en"],"target_languages":["de-AT"]},{"id":"b"}]}`,
		`{"enabled":1e999}`, `{"pools":[[[[]]]]}`, `{"pools":null}`, "{\"mode\":\"\xff\"}", `{"version":{}}`, `{"pools":[{"id":"a"},{"id":"a"}]}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Decode(data)
		if err != nil {
			if len(fields(err)) == 0 || strings.HasPrefix(fields(err)[0], "message") {
				t.Errorf(`%q: %v; want len(fields(err)) != 0, not strings.HasPrefix(fields(err)[0], "message")`, data, err)
			}
			return
		}
		canonical := Encode(cfg)
		again, err := Decode(canonical)
		if err != nil || string(Encode(again)) != string(canonical) {
			t.Errorf("%q gives %s, and that %s, %v", data, canonical, text(again), err)
		}
		if _, err := pairs(cfg); err != nil {
			t.Error(err)
		}
	})
}
