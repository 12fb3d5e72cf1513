package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// module begins the paths of the packages whose comments are read.
const module = "github.com/freeslot/freeslot/"

// page is a mention of another page, which the table links.
var page = regexp.MustCompile(`docs/([\w/]+\.md(#[\w-]+)?)`)

// anyName stands for the names in a map.
const anyName = "<name>"

// Key describes one key of a configuration.
type Key struct {
	// Path has "[]" for any element of a list ("tokens[].role") and "<name>" for any name in a
	// map ("tenants.<name>.weight").
	Path string
	// Type is section, list, map, text, duration, whole number, number or true/false.
	Type string
	// Default is empty if there is none.
	Default string
	field   reflect.StructField
	owner   reflect.Type
}

// Env returns the variable that sets the key. It is empty for two kinds of keys. Keys inside lists
// and maps are set by the variable of the list or the map as a whole. For keys with the tag
// env:"-", the variable means something else.
func (k Key) Env() string {
	if k.field.Tag.Get("env") == "-" || strings.Contains(k.Path, "[]") || strings.Contains(k.Path, anyName) {
		return ""
	}
	return config.EnvName(k.Path)
}

// Keys lists the keys of a configuration struct in the order of its fields, sections before their
// keys. The values of the fields are the defaults. The first element of a list holds the defaults
// of its elements.
func Keys(defaults any) []Key {
	return appendKeys(nil, "", reflect.ValueOf(defaults))
}

func appendKeys(keys []Key, path string, v reflect.Value) []Key {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name := field.Tag.Get("koanf")
		if name == "" || name == "-" {
			continue
		}
		key := Key{
			Path: strings.TrimPrefix(path+"."+name, "."), Type: typeName(value.Type()), Default: defaultText(value),
			field: field, owner: v.Type(),
		}
		keys = append(keys, key)
		value = pointee(value)
		switch {
		case key.Type == "section":
			keys = appendKeys(keys, key.Path, value)
		case key.Type == "list" && typeName(value.Type().Elem()) == "section":
			element := reflect.Zero(value.Type().Elem())
			if value.Len() > 0 {
				element = value.Index(0)
			}
			keys = appendKeys(keys, key.Path+"[]", element)
		case key.Type == "map" && typeName(value.Type().Elem()) == "section":
			keys = appendKeys(keys, key.Path+"."+anyName, reflect.Zero(value.Type().Elem()))
		}
	}
	return keys
}

// pointee returns what v points to, a zero value if v is nil, or v itself if it is not a pointer.
func pointee(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		return reflect.Zero(v.Type().Elem())
	}
	return v.Elem()
}

func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Duration]() {
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
	case reflect.Float64:
		return "number"
	default:
		return "whole number"
	}
}

func defaultText(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return ""
	case v.Kind() == reflect.Slice && v.Len() > 0 && typeName(v.Type().Elem()) == "text":
		return "[" + strings.Join(v.Interface().([]string), ", ") + "]"
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map:
		return ""
	}
	if v = pointee(v); v.Kind() == reflect.Struct {
		return ""
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return config.FormatDuration(d)
	}
	return fmt.Sprint(v.Interface())
}

// Table returns a table with a row for each key of a configuration, with the comment of its field.
func Table(t *testing.T, defaults any) string {
	t.Helper()
	packages := map[string]map[string]string{}
	var rows [][]string
	for _, k := range Keys(defaults) {
		pkg := k.owner.PkgPath()
		if packages[pkg] == nil {
			packages[pkg] = comments(t, strings.TrimPrefix(pkg, module))
		}
		meaning := packages[pkg][k.owner.Name()+"."+k.field.Name]
		if meaning == "" {
			t.Errorf("the field %s.%s, key %s, has no comment", k.owner, k.field.Name, k.Path)
		}
		rows = append(
			rows, []string{code(k.Path), k.Type, code(k.Default), code(k.Env()), page.ReplaceAllString(meaning, "[$1](../$1)")},
		)
	}
	return RowsTable([]string{"key", "type", "default", "variable", "meaning"}, rows)
}

// comments returns the comments of the fields of a package, each in one line, by type and field.
func comments(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					for _, name := range f.Names {
						out[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return out
}
