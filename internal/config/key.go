package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Key describes one key of a configuration.
type Key struct {
	// Path is the key's name with those of its sections; "[]" stands for any
	// element of a list ("tokens[].role"), "<name>" for any name in a map
	// ("tenants.<name>.weight").
	Path string
	// Type is section, list, map, text, duration, whole number, number or true/false.
	Type string
	// Default is what is used when nobody sets the key; empty when there is none.
	Default string
}

// Env is the variable that sets the key, empty for keys inside lists and maps: those are
// set by the variable of the list or the map as a whole.
func (k Key) Env() string {
	if strings.Contains(k.Path, "[]") || strings.Contains(k.Path, anyName) {
		return ""
	}
	return EnvName(k.Path)
}

// anyName stands for the names in a map.
const anyName = "<name>"

// Keys lists the keys of a configuration struct in the order of its fields,
// with the given value's fields as defaults. Sections come before their keys.
func Keys(defaults any) []Key {
	return appendKeys(nil, "", reflect.ValueOf(defaults))
}

func appendKeys(keys []Key, path string, v reflect.Value) []Key {
	for _, f := range structFields(v.Type()) {
		value := v.Field(f.index)
		key := Key{Path: join(path, f.name), Type: typeName(value.Type()), Default: defaultText(value)}
		keys = append(keys, key)
		switch t := indirect(value.Type()); {
		case key.Type == "section" && value.Kind() == reflect.Pointer:
			keys = appendKeys(keys, key.Path, reflect.Zero(t))
		case key.Type == "section":
			keys = appendKeys(keys, key.Path, value)
		case key.Type == "list" && typeName(t.Elem()) == "section":
			keys = appendKeys(keys, key.Path+"[]", reflect.Zero(indirect(t.Elem())))
		case key.Type == "map" && typeName(t.Elem()) == "section":
			keys = appendKeys(keys, join(key.Path, anyName), reflect.Zero(indirect(t.Elem())))
		}
	}
	return keys
}

func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func typeName(t reflect.Type) string {
	t = indirect(t)
	if t == durationType {
		return "duration"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "section"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true/false"
	case reflect.Float32, reflect.Float64:
		return "number"
	default:
		return "whole number"
	}
}

func defaultText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch {
	case v.Type() == durationType:
		return FormatDuration(time.Duration(v.Int()))
	case v.Kind() == reflect.Struct, v.Kind() == reflect.Slice, v.Kind() == reflect.Map:
		return ""
	}
	return fmt.Sprint(v.Interface())
}
