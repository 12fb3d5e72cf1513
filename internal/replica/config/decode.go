package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
)

// text is a value from the environment or a flag, which have only text. A string, in contrast,
// comes from YAML, whose numbers and booleans have types of their own.
type text string

// given is a value on its way to the field of the key at path.
type given struct {
	path   string
	raw    any
	secret bool
}

var durationType = reflect.TypeFor[time.Duration]()

// Decode sets the fields of *dst, a struct with koanf tags, from a parsed document. It returns
// everything that does not fit: unknown keys, values of a wrong type. Whole numbers must be int or
// int64. It does not validate the values.
func Decode(document map[string]any, dst any) Problems {
	var d decoder
	m, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: dst, TagName: "koanf", IgnoreUntaggedFields: true, DecodeHook: d.fit,
		MatchName: func(key, name string) bool { return key == name },
	})
	if err == nil {
		err = m.Decode(given{raw: document})
	}
	d.problems.Add("", err)
	d.problems.sort()
	return d.problems
}

// decoder checks each value before mapstructure sets the field. mapstructure alone would accept 1.5
// as a whole number and 8 as a duration, and would stop at unknown keys.
type decoder struct{ problems Problems }

// fit returns the value that mapstructure sets; nil leaves the field as it is.
func (d *decoder) fit(from, to reflect.Value) (any, error) {
	g, ok := from.Interface().(given)
	switch {
	case !ok:
		return from.Interface(), nil // the name of an entry in a map, or an entry of the defaults
	case g.raw == nil:
		return nil, nil // "redis:" with nothing after it
	case to.Kind() == reflect.Pointer:
		return g, nil // mapstructure calls again with the element
	}
	raw := g.raw
	if s, ok := raw.(text); ok {
		var err error
		if raw, err = spelled(string(s), to); err != nil {
			d.problems.Addf(g.path, "is not valid YAML: %v", err)
			return nil, nil
		}
	}
	if out, ok := d.typed(g, raw, to); ok {
		return out, nil
	}
	want := expected[to.Kind()]
	if to.Type() == durationType {
		want = "a duration such as 500ms, 8s or 1h30m"
	}
	d.problems.Addf(g.path, "is %s, expected %s", found(g, raw, to), want)
	return nil, nil
}

// typed returns raw in a type that fits, if there is one.
func (d *decoder) typed(g given, raw any, to reflect.Value) (out any, ok bool) {
	kind := to.Kind()
	switch v := raw.(type) {
	case string:
		if to.Type() == durationType {
			out, err := time.ParseDuration(v)
			return out, err == nil
		}
		return v, kind == reflect.String
	case bool:
		return v, kind == reflect.Bool
	case int:
		return d.typed(g, int64(v), to)
	case int64:
		return v, to.CanFloat() || to.CanInt() && to.Type() != durationType && !to.OverflowInt(v)
	case float64:
		return v, to.CanFloat() && !math.IsNaN(v) && !math.IsInf(v, 0)
	case []any:
		if kind == reflect.Slice {
			return list(g, v, to), true
		}
	case map[string]any:
		switch kind {
		case reflect.Struct:
			return d.section(g, v, to.Type()), true
		case reflect.Map:
			return mapping(g, v, to), true
		}
	}
	return nil, false
}

// section returns the values for the fields of a struct. A key without a field is a problem.
func (d *decoder) section(g given, raw map[string]any, t reflect.Type) map[string]given {
	out := make(map[string]given, len(raw))
	var known []string
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name := tag.Get("koanf")
		if name == "" || name == "-" {
			continue
		}
		known = append(known, name)
		if v, ok := raw[name]; ok {
			out[name] = given{join(g.path, name), v, tag.Get("secret") == "true"}
		}
	}
	for name := range raw {
		if !slices.Contains(known, name) {
			d.problems.Addf(join(g.path, name), "is not a key of the configuration, expected %s", orList(known))
		}
	}
	return out
}

// list replaces the default, which mapstructure would write into.
func list(g given, raw []any, to reflect.Value) []given {
	to.SetZero()
	out := make([]given, len(raw))
	for i, v := range raw {
		out[i] = given{element(g.path, i), v, g.secret}
	}
	return out
}

// mapping keeps the entries of the default that raw does not name, in a map of its own.
func mapping(g given, raw map[string]any, to reflect.Value) map[string]any {
	out := make(map[string]any, len(raw)+to.Len())
	for entry := to.MapRange(); entry.Next(); {
		out[entry.Key().String()] = entry.Value().Interface()
	}
	to.SetZero()
	for name, v := range raw {
		out[name] = given{join(g.path, name), v, g.secret}
	}
	return out
}

// spelled returns the value of the text s for a field of to's type.
func spelled(s string, to reflect.Value) (any, error) {
	inYAML := strings.HasPrefix(s, "[") || strings.HasPrefix(s, "{")
	switch kind := to.Kind(); {
	case kind == reflect.String || to.Type() == durationType:
		return s, nil
	case to.CanInt() || to.CanUint():
		if n, err := strconv.ParseInt(s, 10, 64); err == nil { // YAML would read 010 as 8
			return n, nil
		}
		return s, nil
	case kind == reflect.Bool:
		if v, ok := spelledBools[strings.ToLower(s)]; ok {
			return v, nil
		}
		return s, nil
	case kind == reflect.Slice && !inYAML:
		return splitList(s), nil
	case kind == reflect.Map && !inYAML:
		pairs := map[string]any{}
		for _, item := range splitList(s) {
			name, value, ok := strings.Cut(string(item.(text)), "=")
			if !ok {
				return s, nil
			}
			pairs[name] = text(value)
		}
		return pairs, nil
	}
	v, err := parseYAML(s)
	if v == nil && err == nil {
		return s, nil // an empty text would set nothing, which the user cannot mean
	}
	return v, err
}

var spelledBools = map[string]bool{
	"true": true, "1": true, "yes": true, "on": true,
	"false": false, "0": false, "no": false, "off": false,
}

// splitList splits a,b,c; the empty text is the empty list.
func splitList(s string) []any {
	out := []any{}
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, text(part))
		}
	}
	return out
}

// found describes the value without any secret. A text in place of a list or a section may contain
// one.
func found(g given, raw any, to reflect.Value) string {
	switch v := raw.(type) {
	case map[string]any:
		return "a section"
	case []any:
		return "a list"
	case string:
		if to.Kind() == reflect.Struct || to.Kind() == reflect.Slice || to.Kind() == reflect.Map {
			return "a text"
		}
		raw = strconv.Quote(v)
	}
	if g.secret {
		return "of the wrong form"
	}
	return fmt.Sprint(raw)
}

var expected = map[reflect.Kind]string{
	reflect.Struct:  "a section (keys indented under it)",
	reflect.Slice:   "a list such as [a, b]",
	reflect.Map:     "names with values such as {a: 1, b: 2}",
	reflect.String:  "a text (put it in quotes)",
	reflect.Bool:    "true or false",
	reflect.Float64: "a number",
	reflect.Int:     "a whole number",
	reflect.Int64:   "a whole number",
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
