package config

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// text is a value from the environment or a flag, where everything is spelled
// as text. A string, in contrast, comes from YAML, whose numbers and booleans
// have types of their own.
type text string

var (
	durationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decoder sets Go values from parsed YAML and notes what does not fit.
type decoder struct {
	problems *Problems
	known    []Key
}

// structure sets the fields of dst. A key without a field is a problem.
func (d *decoder) structure(path string, raw map[string]any, dst reflect.Value) {
	fields := structFields(dst.Type())
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		at := join(path, name)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			d.problems.Addf(at, "is not a key of the configuration%s", suggest(at, d.known))
			continue
		}
		d.value(at, raw[name], dst.Field(fields[i].index), fields[i].secret)
	}
}

// value sets dst from raw. A raw nil ("redis:" with nothing after it) leaves the default.
func (d *decoder) value(path string, raw any, dst reflect.Value, secret bool) {
	if raw == nil {
		return
	}
	if reflect.PointerTo(dst.Type()).Implements(unmarshalerType) {
		d.unmarshalText(path, raw, dst, secret)
		return
	}
	switch dst.Kind() {
	case reflect.Pointer:
		v := reflect.New(dst.Type().Elem())
		d.value(path, raw, v.Elem(), secret)
		dst.Set(v)
	case reflect.Struct:
		if m, ok := d.mapping(path, raw, "a section (keys indented under it)"); ok {
			d.structure(path, m, dst)
		}
	case reflect.Slice:
		d.slice(path, raw, dst, secret)
	case reflect.Map:
		d.stringMap(path, raw, dst, secret)
	case reflect.Interface:
		d.anything(path, raw, dst)
	default:
		if expected := setScalar(raw, dst); expected != "" {
			d.bad(path, raw, expected, secret)
		}
	}
}

func (d *decoder) bad(path string, raw any, expected string, secret bool) {
	shown := fmt.Sprint(raw)
	switch raw := raw.(type) {
	case string, text:
		shown = fmt.Sprintf("%q", raw)
	case map[string]any:
		shown = "a section"
	case []any:
		shown = "a list"
	}
	if secret {
		shown = "of the wrong form"
	}
	d.problems.Addf(path, "is %s, expected %s", shown, expected)
}

func (d *decoder) unmarshalText(path string, raw any, dst reflect.Value, secret bool) {
	s, ok := asText(raw)
	if !ok {
		d.bad(path, raw, "a text", secret)
		return
	}
	if err := dst.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
		d.problems.Addf(path, "is not valid: %v", err)
	}
}

// spelled turns a text that spells a list or a section in YAML into its value.
func (d *decoder) spelled(path string, raw any) (any, bool) {
	s, ok := raw.(text)
	if !ok || !strings.HasPrefix(string(s), "[") && !strings.HasPrefix(string(s), "{") {
		return raw, true
	}
	out, err := parseYAML(string(s))
	if err != nil {
		d.problems.Addf(path, "is not valid YAML: %v", err)
		return nil, false
	}
	return out, true
}

func (d *decoder) mapping(path string, raw any, expected string) (map[string]any, bool) {
	raw, ok := d.spelled(path, raw)
	if !ok {
		return nil, false
	}
	m, ok := raw.(map[string]any)
	if !ok {
		d.bad(path, raw, expected, false)
	}
	return m, ok
}

func (d *decoder) slice(path string, raw any, dst reflect.Value, secret bool) {
	raw, ok := d.spelled(path, raw)
	if !ok {
		return
	}
	if s, ok := raw.(text); ok && dst.Type().Elem().Kind() != reflect.Struct {
		raw = splitList(string(s))
	}
	items, ok := raw.([]any)
	if !ok {
		d.bad(path, raw, "a list", secret)
		return
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		d.value(fmt.Sprintf("%s[%d]", path, i), item, out.Index(i), secret)
	}
	dst.Set(out)
}

func (d *decoder) stringMap(path string, raw any, dst reflect.Value, secret bool) {
	if s, ok := raw.(text); ok && !strings.HasPrefix(string(s), "{") {
		pairs := map[string]any{}
		for _, item := range splitList(string(s)) {
			name, value, ok := strings.Cut(string(item.(text)), "=")
			if !ok {
				d.bad(path, raw, "name=value,name=value", secret)
				return
			}
			pairs[name] = text(value)
		}
		raw = pairs
	}
	m, ok := d.mapping(path, raw, "a mapping of names to values")
	if !ok {
		return
	}
	// What the defaults hold stays unless it is named: maps merge by key.
	out := reflect.MakeMapWithSize(dst.Type(), len(m)+dst.Len())
	for it := dst.MapRange(); it.Next(); {
		out.SetMapIndex(it.Key(), it.Value())
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v := reflect.New(dst.Type().Elem()).Elem()
		d.value(join(path, name), m[name], v, secret)
		out.SetMapIndex(reflect.ValueOf(name).Convert(dst.Type().Key()), v)
	}
	dst.Set(out)
}

// anything sets a field of type any: a text that is YAML has its YAML type.
func (d *decoder) anything(path string, raw any, dst reflect.Value) {
	if s, ok := raw.(text); ok {
		v, err := parseYAML(string(s))
		if err != nil || v == nil {
			v = string(s)
		}
		raw = v
	}
	v := reflect.ValueOf(raw)
	if !v.Type().AssignableTo(dst.Type()) {
		d.bad(path, raw, "another kind of value", false)
		return
	}
	dst.Set(v)
}

// setScalar returns what was expected when raw does not fit dst.
func setScalar(raw any, dst reflect.Value) (expected string) {
	if dst.Type() == durationType {
		const expected = "a duration such as 500ms, 8s or 1h30m"
		s, ok := asText(raw)
		if !ok {
			return expected
		}
		v, err := time.ParseDuration(s)
		if err != nil {
			return expected
		}
		dst.SetInt(int64(v))
		return ""
	}
	switch dst.Kind() {
	case reflect.String:
		s, ok := asText(raw)
		if !ok {
			return "a text (put it in quotes)"
		}
		dst.SetString(s)
	case reflect.Bool:
		v, ok := asBool(raw)
		if !ok {
			return "true or false"
		}
		dst.SetBool(v)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v, ok := asInt(raw)
		if !ok || dst.OverflowInt(v) {
			return "a whole number"
		}
		dst.SetInt(v)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v, ok := asInt(raw)
		if !ok || v < 0 || dst.OverflowUint(uint64(v)) {
			return "a whole number, 0 or more"
		}
		dst.SetUint(uint64(v))
	case reflect.Float32, reflect.Float64:
		v, ok := asFloat(raw)
		if !ok {
			return "a number"
		}
		dst.SetFloat(v)
	default:
		panic("config: a field of type " + dst.Type().String() + " cannot be configured")
	}
	return ""
}

func asText(raw any) (string, bool) {
	switch v := raw.(type) {
	case string:
		return v, true
	case text:
		return string(v), true
	}
	return "", false
}

func asBool(raw any) (bool, bool) {
	switch v := raw.(type) {
	case bool:
		return v, true
	case text:
		switch strings.ToLower(string(v)) {
		case "true", "1", "yes", "on":
			return true, true
		case "false", "0", "no", "off":
			return false, true
		}
	}
	return false, false
}

func asInt(raw any) (int64, bool) {
	switch v := raw.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case text:
		n, err := strconv.ParseInt(string(v), 10, 64)
		return n, err == nil
	}
	return 0, false
}

func asFloat(raw any) (float64, bool) {
	switch v := raw.(type) {
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case text:
		f, err := strconv.ParseFloat(string(v), 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	n, ok := asInt(raw)
	return float64(n), ok
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

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
